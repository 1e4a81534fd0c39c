package deploy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// The versions 1.x of Kubernetes that Muster supports begin with OldestMinor, the first whose
// admission policies know the expressions of ours. Mutating admission policies are there from
// MutatingMinor on; before, they are off by default and of another API version.
const (
	OldestMinor   = 33
	MutatingMinor = 36
)

// MutatingPolicies reports whether a version of Kubernetes has mutating admission policies. It
// is written as kubectl or a cloud writes it: 1.33, v1.35.2, v1.34.1-eks-113cf36.
func MutatingPolicies(kubernetes string) (bool, error) {
	v, err := version.ParseGeneric(strings.TrimSuffix(kubernetes, "+"))
	switch {
	case err != nil:
		return false, fmt.Errorf("%q is no version of Kubernetes; give one such as 1.%d or v1.%d.1", kubernetes, OldestMinor, MutatingMinor)
	case v.LessThan(version.MajorMinor(1, OldestMinor)):
		return false, fmt.Errorf("%q is older than 1.%d, whose admission policies are the first to know the expressions of Muster's; "+
			"upgrade the cluster", kubernetes, OldestMinor)
	case v.Major() > 1:
		return false, fmt.Errorf("%q is not known yet; give a version 1.%d or later of Kubernetes 1", kubernetes, OldestMinor)
	}
	return v.AtLeast(version.MajorMinor(1, MutatingMinor)), nil
}
