// Package provisioning decides the life of a ProvisioningRequest, in rooms of which each
// imports only those before it:
//
//   - state: gangs, nodes and the bookings on them
//   - planner: whether a gang fits on what is there, what to launch for it, or whether to wait
//   - transaction: the next step of a request, from its first plan to the end of its booking
//   - scaledown: which machines and nodes are to be tidied up
//   - cost: the price of machines, and the gangs that pay it
//
// Everything in them is a function from a snapshot, with the time in it, to a verdict
// with reasons; nothing talks to an API, a clock or a log. The room fit, below them, judges
// one pod on one node; text and when are what they all use. The room model derives the
// snapshots from objects, and controller carries the verdicts out.
package provisioning
