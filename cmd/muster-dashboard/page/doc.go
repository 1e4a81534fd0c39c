// Package page is the page about a cluster: who waits in its queues, what machines could
// be had, and what all of it costs. It decides by the code that Muster itself runs, from
// what it is given to read, and changes nothing.
//
//	Cluster ──Changed──▶ Run: decide ──decision──▶ ServeHTTP: assets, /api/…, pulses
//	                       └── samples ──▶ past ──▶ curves
//
// A decision is made at most every shortestRest, and only if something has changed, or
// time may have changed something, while somebody looks. Whoever looks holds a stream of
// pulses, each of which says which decision is the newest; the page then asks for what it
// shows of that. A decision is never changed, so that answers need no locks.
package page
