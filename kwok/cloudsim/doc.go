// Package cloudsim simulates the clouds behind their own wire formats, so that
// unmodified SDK clients talk to it: a World holds pools of machines, reservations,
// quotas, prices and mishaps, and keeps the bill; a front end for each cloud (in the
// folders below) speaks its protocol. What a launch gets and what becomes of each
// machine is decided by kwok/pool.
//
// The words: an instance is a machine of a cloud; a call is one request to a cloud's
// API, of a kind that is called its action; a fault of a call is a scripted mishap
// on the way. Nothing happens by itself: what is due is computed at the next call, by the
// world's clock.
package cloudsim
