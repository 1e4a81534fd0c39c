// Package v1alpha1 is the simulator's own API, group kwok.muster.dev: Machine,
// the record that a simulated cloud keeps of one machine.
//
// +kubebuilder:object:generate=true
// +groupName=kwok.muster.dev
package v1alpha1
