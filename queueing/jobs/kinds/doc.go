// Package kinds defines the kinds of jobs that are custom resources. A Stanza describes how objects of a kind are suspended, where their
// pod templates are, and when they have finished. Stanzas of well-known kinds are built in. The configuration adds stanzas for other
// kinds.
//
// The watches, admission policies and permissions for the kinds are derived from the stanzas, see Policies and Rights.
package kinds
