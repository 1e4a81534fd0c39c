package devices

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Selectors evaluates device selectors and caches the compiled expressions. It is safe for concurrent use.
type Selectors struct{ cel *cel.Cache }

// NewSelectors returns an empty cache.
func NewSelectors() Selectors {
	return Selectors{cel.NewCache(mostExpressions, cel.Features{EnableConsumableCapacity: true})}
}

// Compile returns an error if an expression does not compile.
func (s Selectors) Compile(expression string) error {
	if program := s.cel.GetOrCompile(expression); program.Error != nil {
		return program.Error
	}
	return nil
}

// Matches reports whether a device of the driver satisfies all selectors. It returns the error of the first selector that does not
// compile or cannot be evaluated on the device. As in the allocator, a selector without an expression matches nothing.
func (s Selectors) Matches(selectors []resourcev1.DeviceSelector, driver string, d *resourcev1.Device) (bool, error) {
	for i := range selectors {
		of := selectors[i].CEL
		if of == nil {
			return false, nil
		}
		program := s.cel.GetOrCompile(of.Expression)
		if program.Error != nil {
			return false, fmt.Errorf("CEL compilation failed: %w", program.Error)
		}
		ok, _, err := program.DeviceMatches(context.Background(), cel.Device{
			Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
		})
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}
