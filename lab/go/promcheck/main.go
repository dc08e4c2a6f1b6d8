// Command promcheck evaluates alerts and expressions over made-up or recorded series, with Prometheus' own parser, engine
// and templates. It replaces promtool, which takes minutes to build because it includes service discovery. It reads one
// request as JSON from standard input and writes the response to standard output.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// request has rules, expressions and histories: in each history, which rules fire, and what do the expressions find?
type request struct {
	Rules       string             `json:"rules"`
	Expressions []string           `json:"expressions"`
	Histories   map[string]history `json:"histories"`
}

type response struct {
	Fired     map[string][]firing       `json:"fired"`
	Found     map[string]map[string]int `json:"found"`
	Selectors map[string][]selector     `json:"selectors"`
}

var (
	language = parser.NewParser(parser.Options{})
	engine   = promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: language,
	})
)

func main() {
	var received request
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&received)
	if err == nil {
		var result response
		if result, err = respond(received); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(result)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "promcheck:", err)
		os.Exit(1)
	}
}

func respond(received request) (response, error) {
	result := response{
		Fired: map[string][]firing{}, Found: map[string]map[string]int{}, Selectors: map[string][]selector{},
	}
	groups, problems := rulefmt.Parse([]byte(received.Rules), false, model.UTF8Validation, language, slog.Default())
	if err := errors.Join(problems...); err != nil {
		return result, err
	}
	for _, text := range received.Expressions {
		expression, err := language.ParseExpr(text)
		if err != nil {
			return result, fmt.Errorf("%s: %w", text, err)
		}
		result.Selectors[text] = selectorsOf(expression)
	}
	for name, past := range received.Histories {
		series, err := past.record()
		if err != nil {
			return result, fmt.Errorf("history %s: %w", name, err)
		}
		result.Fired[name] = []firing{}
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				fired, err := firings(rule, past, series)
				if err != nil {
					return result, fmt.Errorf("history %s: %s: %w", name, rule.Alert, err)
				}
				result.Fired[name] = append(result.Fired[name], fired...)
			}
		}
		result.Found[name] = map[string]int{}
		for _, text := range received.Expressions {
			found, err := evaluate(text, past, series)
			if err != nil {
				return result, fmt.Errorf("history %s: %s: %w", name, text, err)
			}
			result.Found[name][text] = len(found)
		}
	}
	return result, nil
}

// evaluate returns the values of an expression at every step of a history.
func evaluate(text string, past history, series recording) (promql.Matrix, error) {
	ctx := context.Background()
	query, err := engine.NewRangeQuery(ctx, series, nil, text, epoch, epoch.Add(past.until), past.every)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	return query.Exec(ctx).Matrix()
}
