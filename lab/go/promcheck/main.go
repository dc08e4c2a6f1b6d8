// Command promcheck plays alerts and expressions over made-up or recorded series, by Prometheus' own parser, engine and
// templates. It is promtool without what makes promtool large: a build of minutes for service discovery that nobody here
// asks for. It reads one question as JSON from standard input and writes the answer to standard output.
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

// question is what is asked: which of the rules fire in each history, and what each expression is and finds.
type question struct {
	Rules       string             `json:"rules"`
	Expressions []string           `json:"expressions"`
	Histories   map[string]history `json:"histories"`
}

type answer struct {
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
	var asked question
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&asked)
	if err == nil {
		var told answer
		if told, err = answered(asked); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(told)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "promcheck:", err)
		os.Exit(1)
	}
}

func answered(asked question) (answer, error) {
	told := answer{
		Fired: map[string][]firing{}, Found: map[string]map[string]int{}, Selectors: map[string][]selector{},
	}
	groups, problems := rulefmt.Parse([]byte(asked.Rules), false, model.UTF8Validation, language, slog.Default())
	if err := errors.Join(problems...); err != nil {
		return told, err
	}
	for _, text := range asked.Expressions {
		expression, err := language.ParseExpr(text)
		if err != nil {
			return told, fmt.Errorf("%s: %w", text, err)
		}
		told.Selectors[text] = selectorsOf(expression)
	}
	for name, lived := range asked.Histories {
		series, err := lived.recorded()
		if err != nil {
			return told, fmt.Errorf("history %s: %w", name, err)
		}
		told.Fired[name] = []firing{}
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				fired, err := played(rule, lived, series)
				if err != nil {
					return told, fmt.Errorf("history %s: %s: %w", name, rule.Alert, err)
				}
				told.Fired[name] = append(told.Fired[name], fired...)
			}
		}
		told.Found[name] = map[string]int{}
		for _, text := range asked.Expressions {
			found, err := evaluated(text, lived, series)
			if err != nil {
				return told, fmt.Errorf("history %s: %s: %w", name, text, err)
			}
			told.Found[name][text] = len(found)
		}
	}
	return told, nil
}

// evaluated returns what an expression gives at every step of a history.
func evaluated(text string, lived history, series recording) (promql.Matrix, error) {
	ctx := context.Background()
	query, err := engine.NewRangeQuery(ctx, series, nil, text, epoch, epoch.Add(lived.until), lived.every)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	return query.Exec(ctx).Matrix()
}
