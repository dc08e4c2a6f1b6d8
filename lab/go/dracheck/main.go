// Command dracheck allocates devices with Kubernetes' own allocator. It reads one case per line as JSON from standard
// input, and writes one answer per line to standard output: the allocations, nothing, or an error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// problem is a case: a node, the devices that there are, the claims to allocate, and what others have.
type problem struct {
	Node      string                                   `json:"node"`
	Labels    map[string]string                        `json:"labels"`
	Slices    []*resource.ResourceSlice                `json:"slices"`
	Rules     []resource.DeviceTaintRule               `json:"rules"`
	Classes   []*resource.DeviceClass                  `json:"classes"`
	Claims    []*resource.ResourceClaim                `json:"claims"`
	Allocated []resource.DeviceRequestAllocationResult `json:"allocated"`
}

// answer has the allocations, or why there are none; a search that takes too long has no answer.
type answer struct {
	Results []resource.AllocationResult `json:"results"`
	Error   string                      `json:"error"`
	Late    bool                        `json:"late"`
}

const limit = 2 * time.Second

// features are those that are on by default in Kubernetes 1.37.
var features = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

var selectors = cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})

// classes lists the device classes of a case.
type classes []*resource.DeviceClass

func (c classes) Get(name string) (*resource.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "deviceclasses"}, name)
}

func (c classes) List() ([]*resource.DeviceClass, error) { return c, nil }

func main() {
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	for decoder.More() {
		var found problem
		if err := decoder.Decode(&found); err != nil {
			fmt.Fprintln(os.Stderr, "dracheck:", err)
			os.Exit(1)
		}
		if err := encoder.Encode(solve(found)); err != nil {
			fmt.Fprintln(os.Stderr, "dracheck:", err)
			os.Exit(1)
		}
	}
	if err := output.Flush(); err != nil {
		os.Exit(1)
	}
}

func solve(found problem) (result answer) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// Input that the API server would refuse can end in a panic.
	defer func() {
		if reason := recover(); reason != nil {
			result = answer{Error: fmt.Sprint("panic: ", reason)}
		}
	}()
	taint(found.Slices, found.Rules)
	allocator, err := structured.NewAllocator(
		ctx, features, allocated(found.Allocated), classes(found.Classes), found.Slices, selectors,
	)
	if err != nil {
		return answer{Error: err.Error()}
	}
	node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: found.Node, Labels: found.Labels}}
	results, err := allocator.Allocate(ctx, node, found.Claims)
	if err != nil {
		return answer{Error: err.Error(), Late: errors.Is(err, context.DeadlineExceeded)}
	}
	return answer{Results: results}
}

// taint adds the taints of rules to devices, as the tracker of slices does, which needs an API server.
func taint(slices []*resource.ResourceSlice, rules []resource.DeviceTaintRule) {
	for _, rule := range rules {
		selector := rule.Spec.DeviceSelector
		if selector == nil {
			continue
		}
		for _, slice := range slices {
			if !names(selector.Driver, slice.Spec.Driver) || !names(selector.Pool, slice.Spec.Pool.Name) {
				continue
			}
			for i := range slice.Spec.Devices {
				device := &slice.Spec.Devices[i]
				if names(selector.Device, device.Name) {
					device.Taints = append(device.Taints, rule.Spec.Taint)
				}
			}
		}
	}
}

func names(selected *string, name string) bool {
	return selected == nil || *selected == name
}

// allocated collects what is taken, as the scheduler plugin does from the claims.
func allocated(results []resource.DeviceRequestAllocationResult) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, result := range results {
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		switch {
		case result.AdminAccess != nil && *result.AdminAccess:
		case result.ShareID == nil:
			state.AllocatedDevices.Insert(id)
		default:
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}
