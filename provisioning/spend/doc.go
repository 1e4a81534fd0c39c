// Package spend has what namespaces and queues may spend in a period, and what they have spent.
//
// The terms: a Charge is what a request pays for its machines. A Meter adds up the spend at a rate that changes. The committed amount is
// the future cost of machines that are in use or requested, until their gangs end. A launch is in vain if its machines are terminated
// before a gang has booked what it needs.
package spend
