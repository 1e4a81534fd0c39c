// Package state has what plans are made of: gangs, nodes, and the bookings on them.
//
// A gang is all pods of one request; a podSet is a number of like pods; a booking is the
// promise of a node's room to a gang, claimed at first and open once the gang's pods may
// come; held nodes are those that Muster has cordoned.
package state
