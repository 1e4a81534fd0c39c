// Package faults makes a sandbox go wrong on purpose, by a plan that is the same for
// the same seed: components die or freeze, and what muster and kube-apiserver say to
// each other is refused, lost, late or cut off.
//
// The words: a Fault is one way to go wrong, with its times; an Occurrence is one of
// those times; a Gate is the proxy through which the requests of a muster go. Death
// and freezing come to processes, all else to requests.
//
//	gate := faults.NewGate(plan.Seed)
//	config.Proxy = gate.Handler // before the sandbox starts
//	...
//	err := faults.Run(ctx, plan, time.Minute, running, gate, nil)
package faults
