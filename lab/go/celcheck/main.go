// Command celcheck evaluates device selectors with Kubernetes' own compiler. It reads cases as JSON lines from standard
// input and writes one line for each: "true", "false", "compile error", "runtime error" or "out of cost". With the
// argument "names" it writes the names of all functions and macros instead.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

type testCase struct {
	Expression string             `json:"expression"`
	Driver     string             `json:"driver"`
	Device     resourceapi.Device `json:"device"`
}

// The features of a scheduler of 1.37 with its defaults.
var compiler = cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})

func main() {
	if slices.Equal(os.Args[1:], []string{"names"}) {
		fmt.Println(strings.Join(names(), "\n"))
	} else if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "celcheck:", err)
		os.Exit(1)
	}
}

func names() []string {
	env := compiler.CompileCELExpression("true", cel.Options{}).Environment
	found := slices.Collect(maps.Keys(env.Functions()))
	for _, macro := range env.Macros() {
		found = append(found, macro.Function())
	}
	return found
}

func run(input io.Reader, output io.Writer) error {
	decoder := json.NewDecoder(input)
	decoder.DisallowUnknownFields()
	writer := bufio.NewWriter(output)
	for {
		var received testCase
		if err := decoder.Decode(&received); errors.Is(err, io.EOF) {
			return writer.Flush()
		} else if err != nil {
			return err
		}
		verdict, detail := evaluate(received)
		// The detail is for the reader of a failed test.
		fmt.Fprintf(writer, "%s\t%s\n", verdict, strings.Join(strings.Fields(detail), " "))
	}
}

// evaluate returns the verdict. The type checker panics on a few malformed literals, which cannot be selectors then.
func evaluate(received testCase) (verdict, detail string) {
	defer func() {
		if problem := recover(); problem != nil {
			verdict, detail = "compile error", fmt.Sprint("panic: ", problem)
		}
	}()
	compiled := compiler.CompileCELExpression(received.Expression, cel.Options{DisableCostEstimation: true})
	if compiled.Error != nil {
		return "compile error", compiled.Error.Detail
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
		Driver:                   received.Driver,
		AllowMultipleAllocations: received.Device.AllowMultipleAllocations,
		Attributes:               received.Device.Attributes,
		Capacity:                 received.Device.Capacity,
	})
	switch {
	case err == nil:
		return fmt.Sprint(matches), ""
	case strings.Contains(err.Error(), "cost limit exceeded"):
		return "out of cost", err.Error()
	default:
		return "runtime error", err.Error()
	}
}
