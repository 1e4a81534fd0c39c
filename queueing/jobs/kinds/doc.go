// Package kinds has the kinds of jobs that are custom resources. Each is a Stanza, which
// says how its objects are held, where their pod templates are, and when they have ended.
// The stanzas of well-known kinds are built in; settings add those of a cluster's own.
//
// What must be watched, what admission policies must hold, and which rights Muster needs is
// derived from the stanzas, see Policies and Rules.
package kinds
