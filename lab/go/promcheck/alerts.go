package main

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

// firing is an alert, and the seconds of the history until it fired first.
type firing struct {
	Alert       string            `json:"alert"`
	After       float64           `json:"after"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Prometheus defines these before the text of every alert.
const defined = `{{$labels := .Labels}}{{$value := .Value}}`

// firings evaluates an alert at every step: it fires once it has held without a gap for long enough.
func firings(rule rulefmt.Rule, past history, series recording) ([]firing, error) {
	found, err := evaluate(rule.Expr, past, series)
	if err != nil {
		return nil, err
	}
	var fired []firing
	for _, one := range found {
		begun := 0
		for index, point := range one.Floats {
			if index > 0 && point.T-one.Floats[index-1].T > past.every.Milliseconds() {
				begun = index
			}
			if point.T-one.Floats[begun].T >= time.Duration(rule.For).Milliseconds() {
				words, err := expandTemplates(rule, promql.Sample{Metric: one.Metric, T: point.T, F: point.F})
				if err != nil {
					return nil, err
				}
				fired = append(fired, words)
				break
			}
		}
	}
	return fired, nil
}

// expandTemplates expands the annotations of an alert.
func expandTemplates(rule rulefmt.Rule, sample promql.Sample) (firing, error) {
	found := firing{
		Alert:       rule.Alert,
		After:       time.UnixMilli(sample.T).Sub(epoch).Seconds(),
		Labels:      sample.Metric.Map(),
		Annotations: map[string]string{},
	}
	data := template.AlertTemplateData(found.Labels, nil, "", sample)
	for name, text := range rule.Annotations {
		expander := template.NewTemplateExpander(
			context.Background(), defined+text, rule.Alert, data, model.Time(sample.T), nil, &url.URL{}, nil,
		)
		words, err := expander.Expand()
		if err != nil {
			return found, err
		}
		found.Annotations[name] = words
	}
	for name, text := range rule.Labels {
		found.Labels[name] = text
	}
	return found, nil
}
