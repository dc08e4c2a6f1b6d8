package main

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// selector is a metric that an expression reads, and the labels that its series need: those that are matched, and those
// by which the expression aggregates or joins.
type selector struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
}

func selectorsOf(expression parser.Expr) []selector {
	var found []selector
	parser.Inspect(expression, func(node parser.Node, above []parser.Node) error {
		if read, is := node.(*parser.VectorSelector); is {
			found = append(found, selector{Metric: read.Name, Labels: needed(read, above)})
		}
		return nil
	})
	return found
}

func needed(read *parser.VectorSelector, above []parser.Node) []string {
	wanted := []string{}
	for _, matcher := range read.LabelMatchers {
		if matcher.Name != labels.MetricName {
			wanted = append(wanted, matcher.Name)
		}
	}
	for _, node := range above {
		switch one := node.(type) {
		case *parser.AggregateExpr:
			if !one.Without {
				wanted = append(wanted, one.Grouping...)
			}
		case *parser.BinaryExpr:
			if one.VectorMatching != nil && one.VectorMatching.On {
				wanted = append(wanted, one.VectorMatching.MatchingLabels...)
			}
		}
	}
	slices.Sort(wanted)
	return slices.Compact(wanted)
}
