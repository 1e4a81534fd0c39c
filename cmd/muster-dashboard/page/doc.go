// Package page is the dashboard of a cluster: its pending jobs, the machines that could be
// launched, and their costs. It decides by the code that Muster itself runs, from the objects
// that it can read, and changes nothing.
//
//	Cluster ──Changed──▶ Run: decide ──decision──▶ ServeHTTP: assets, /api/…, heartbeats
//	                       └── samples ──▶ past ──▶ curves
//
// A decision is made at most every shortestRest, if an object has changed or, while a page is
// open, if time may have changed the outcome. An open page holds a stream of heartbeats with the
// version of the newest decision, and then requests the parts that it shows. A decision is
// immutable, so answers need no locks.
package page
