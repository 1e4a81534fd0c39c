// Package v1alpha1 is Muster's own API, group muster.dev: NodeGroup, a set of identical
// machines that Muster may launch and terminate, and CapacityPolicy, the rules by which it
// chooses among groups.
//
// Amounts of money are quantities in USD per hour; durations are Go durations
// such as "90s" or "10m".
//
// +kubebuilder:object:generate=true
// +groupName=muster.dev
package v1alpha1
