// Package spend has what namespaces and queues may spend in a period, and what they have spent.
//
// Words: a Charge is what a request pays for its machines; a Meter adds up what is spent at a rate
// that changes; money is committed that machines in use, or asked for, will cost until their gangs
// end. A launch is in vain if its machines are given back before a gang has booked what it needs.
package spend
