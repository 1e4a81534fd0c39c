package promises

import (
	"fmt"
	"time"
)

// Promise is one of the design's promises.
type Promise string

// The promises that a watch can check.
const (
	Whole     Promise = "P1 whole"
	NoLeak    Promise = "P2 nothing leaks"
	NoDouble  Promise = "P3 no double promise"
	Quota     Promise = "P4 quota"
	Explained Promise = "P7 explained"
	NoHarm    Promise = "P9 do no harm"
)

// Violation is a promise that was not kept.
type Violation struct {
	Promise Promise
	// Time at which it was observed.
	Time time.Time
	// Object as kind and name, namespaced ones as kind namespace/name.
	Object string
	// Revision of the event that broke the promise; 0 where it was time that passed.
	Revision uint64
	// Message says what was seen.
	Message string
}

func (v Violation) String() string {
	at := v.Time.UTC().Format("15:04:05.000")
	if v.Revision > 0 {
		at += fmt.Sprintf(" (resourceVersion %d)", v.Revision)
	}
	return fmt.Sprintf("%s: %s: %s at %s", v.Promise, v.Object, v.Message, at)
}

// suspect is a violation that rests on the order of events.
type suspect struct {
	Violation
	key string
	due time.Time
}

// suspect notes a violation that rests on the order of events, once for each key.
func (c *Checker) suspect(key string, e Event, p Promise, object, format string, args ...any) {
	key = string(p) + "|" + key
	if c.raised[key] {
		return
	}
	c.raised[key] = true
	c.suspects = append(c.suspects, suspect{key: key, due: c.now.Add(c.config.Confirm), Violation: Violation{
		Promise: p, Time: e.Time, Object: object, Revision: e.Revision, Message: fmt.Sprintf(format, args...),
	}})
}

// accuse notes a violation that time alone has made, once for each key.
func (c *Checker) accuse(key string, p Promise, object, format string, args ...any) {
	key = string(p) + "|" + key
	if c.raised[key] {
		return
	}
	c.raised[key] = true
	c.violations = append(c.violations, Violation{Promise: p, Time: c.now, Object: object, Message: fmt.Sprintf(format, args...)})
}

// forgive lets the key be noted again, since the state that it stood for is over.
func (c *Checker) forgive(p Promise, key string) { delete(c.raised, string(p)+"|"+key) }

// confirm confirms the suspects that are due.
func (c *Checker) confirm() {
	var left []suspect
	for _, s := range c.suspects {
		if c.now.Before(s.due) {
			left = append(left, s)
		} else {
			c.violations = append(c.violations, s.Violation)
		}
	}
	c.suspects = left
}

// doubt drops the suspects of later revisions: the order that they rest on was
// not the true one.
func (c *Checker) doubt(revision uint64) {
	var left []suspect
	for _, s := range c.suspects {
		if s.Revision > revision {
			delete(c.raised, s.key)
			c.stats.Dropped++
		} else {
			left = append(left, s)
		}
	}
	c.suspects = left
}
