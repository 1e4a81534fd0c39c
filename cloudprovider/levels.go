package cloudprovider

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// ReadLevel parses the declaration of a node label whose value is the domain of a machine, and the number of machines in a domain; an
// empty amount is unknown.
func ReadLevel(label, amount string) (l v1alpha1.TopologyLevel, err error) {
	l.NodeLabel = label
	if problems := validation.IsQualifiedName(label); len(problems) > 0 {
		return l, fmt.Errorf("%q is no node label: %s", label, strings.Join(problems, ", "))
	}
	if label == corev1.LabelHostname || label == corev1.LabelTopologyZone {
		return l, fmt.Errorf("%s is known without it: name the label of what is between host and zone, such as a rack", label)
	}
	if amount == "" {
		return l, nil
	}
	n, err := strconv.ParseInt(amount, 10, 32)
	if err != nil || n < 1 || n > 100_000 {
		return l, fmt.Errorf("%q is no number of machines: give how many a domain takes, for example 18, or nothing", amount)
	}
	l.MachinesPerDomain = int32(n)
	return l, nil
}

// WithLevel adds a level, and replaces one with the same label.
func WithLevel(levels []v1alpha1.TopologyLevel, l v1alpha1.TopologyLevel) []v1alpha1.TopologyLevel {
	same := func(o v1alpha1.TopologyLevel) bool { return o.NodeLabel == l.NodeLabel }
	return append(slices.DeleteFunc(slices.Clone(levels), same), l)
}
