// Package v1alpha1 is Muster's own API, group muster.dev: NodeGroup, a set of
// like machines that Muster may grow and shrink, and CapacityPolicy, the rules
// by which it chooses among groups.
//
// Amounts of money are quantities in USD per hour; durations are Go durations
// such as "90s" or "10m".
//
// +kubebuilder:object:generate=true
// +groupName=muster.dev
package v1alpha1
