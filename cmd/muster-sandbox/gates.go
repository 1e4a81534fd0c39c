package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// readGates reads feature gates of the Kubernetes that is in this program, each as NAME=true or
// NAME=false.
func readGates(texts []string) (map[string]bool, error) {
	out := map[string]bool{}
	all := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("--feature-gates: %q must be NAME=true or NAME=false", text)
		}
		if _, known := all.GetAll()[featuregate.Feature(name)]; !known {
			return nil, fmt.Errorf("--feature-gates: Kubernetes %s has no feature gate %q%s", all.EmulationVersion(), name, similar(name))
		}
		out[name] = on
	}
	if err := all.SetFromMap(out); err != nil {
		return nil, fmt.Errorf("--feature-gates: %w", err)
	}
	if wrong := errors.Join(all.Validate()...); wrong != nil {
		return nil, fmt.Errorf("--feature-gates: %w", wrong)
	}
	return out, nil
}

// similar reports which gates a name may stand for.
func similar(name string) string {
	var out []string
	for _, gate := range gateNames() {
		if name != "" && strings.Contains(strings.ToLower(gate), strings.ToLower(name)) {
			out = append(out, gate)
		}
	}
	if len(out) == 0 {
		return "; see the reference of Kubernetes, Feature Gates"
	}
	return ", but " + strings.Join(out, ", ")
}

func gateNames() (out []string) {
	for gate := range utilfeature.DefaultFeatureGate.DeepCopy().GetAll() {
		out = append(out, string(gate))
	}
	slices.Sort(out)
	return out
}

// completeGates completes the last item of a list with the gates that are not in it yet.
func completeGates(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	at := strings.LastIndex(typed, ",") + 1
	var out []string
	for _, gate := range gateNames() {
		if strings.HasPrefix(gate, typed[at:]) && !strings.Contains(typed[:at], gate+"=") {
			out = append(out, typed[:at]+gate+"=true", typed[:at]+gate+"=false")
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
