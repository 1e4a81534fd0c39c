package promises

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/nodegroups"
)

// amounts writes resources as people do: "cpu 8, nvidia.com/gpu 8".
func amounts(r nodegroups.Resources) string {
	var parts []string
	for _, name := range r.Names() {
		if r[name] != 0 {
			parts = append(parts, fmt.Sprintf("%s %s", name, nodegroups.Quantity(name, r[name])))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// short is by how much have falls short of need; nil if it does not.
func short(have, need nodegroups.Resources) nodegroups.Resources {
	var out nodegroups.Resources
	for name, v := range need {
		if by := v - have[name]; by > 0 {
			if out == nil {
				out = nodegroups.Resources{}
			}
			out[name] = by
		}
	}
	return out
}
