package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// epoch is the start of every history. It is not zero, because ranges look back.
var epoch = time.Unix(1_000_000, 0)

// history has the scraped series, in the notation of promtool's tests: 'up{job="x"}' to '1x10 0x5 _x3'.
type history struct {
	every, until time.Duration
	series       map[string]string
}

func (past *history) UnmarshalJSON(text []byte) error {
	var plain struct {
		Every  model.Duration    `json:"every"`
		Until  model.Duration    `json:"until"`
		Series map[string]string `json:"series"`
	}
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	past.every, past.until, past.series = time.Duration(plain.Every), time.Duration(plain.Until), plain.Series
	if past.every <= 0 {
		return fmt.Errorf("every is %s", past.every)
	}
	return nil
}

func (past history) record() (recording, error) {
	var found recording
	for name, values := range past.series {
		metric, sequence, err := language.ParseSeriesDesc(name + " " + values)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", name, values, err)
		}
		one := promql.Series{Metric: metric}
		for step, value := range sequence {
			if !value.Omitted {
				at := epoch.Add(time.Duration(step) * past.every)
				one.Floats = append(one.Floats, promql.FPoint{T: at.UnixMilli(), F: value.Value})
			}
		}
		found = append(found, one)
	}
	return found, nil
}

// recording has all series of a history, as the engine queries them.
type recording []promql.Series

func (all recording) Querier(_, _ int64) (storage.Querier, error) {
	return querier{storage.NoopQuerier(), all}, nil
}

type querier struct {
	storage.Querier
	all recording
}

func (from querier) Select(
	_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher,
) storage.SeriesSet {
	chosen := &selection{at: -1}
	for _, one := range from.all {
		if matches(one.Metric, matchers) {
			chosen.series = append(chosen.series, promql.NewStorageSeries(one))
		}
	}
	return chosen
}

func matches(metric labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(metric.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

type selection struct {
	series []storage.Series
	at     int
}

func (chosen *selection) Next() bool {
	chosen.at++
	return chosen.at < len(chosen.series)
}

func (chosen *selection) At() storage.Series                { return chosen.series[chosen.at] }
func (chosen *selection) Err() error                        { return nil }
func (chosen *selection) Warnings() annotations.Annotations { return nil }
