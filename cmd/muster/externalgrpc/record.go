package externalgrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

// record is the annotation of a NodeGroup with the launches that a cluster-autoscaler has requested.
type record struct {
	// Last is the number of the last launch.
	Last int `json:"last"`
	// Open launches still lack machines.
	Open []launch `json:"open,omitempty"`
}

// launch is one request for machines.
//
//	          all were made
//	asked ────────────────────────────────▶ no longer open
//	 │ └─ refused ── missing ones deleted ─────▶ ▲
//	 └─ missing ones deleted: given up ─ settled ┘
type launch struct {
	Number int `json:"number"`
	// Count is the number of requested machines. Once the launch is refused, it is the number of machines that were not made.
	Count   int       `json:"count"`
	Started time.Time `json:"started"`
	// Refused is the cloud's refusal, if any.
	Refused *refusal `json:"refused,omitempty"`
	// GivenUp is when the autoscaler deleted the missing machines before the cloud responded. Machines of the launch that appear after
	// that are terminated, except those in Keep.
	GivenUp *time.Time `json:"givenUp,omitempty"`
	Keep    []string   `json:"keep,omitempty"`
}

// refusal is an error of the cloud.
type refusal struct {
	Class   v1alpha1.ErrorClass `json:"class"`
	Code    string              `json:"code"`
	Message string              `json:"message,omitempty"`
}

// errUnreadable is about a record that something else has written to.
var errUnreadable = errors.New("the annotation " + v1alpha1.AutoscalerLaunchesAnnotation + " cannot be read, and only a person may " +
	"remove it, since it numbers the launches")

// read returns the record of a NodeGroup.
func read(group *v1alpha1.NodeGroup) (r record, err error) {
	text := group.Annotations[v1alpha1.AutoscalerLaunchesAnnotation]
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("NodeGroup %s: %w: %w", group.Name, errUnreadable, err)
	}
	return r, nil
}

// write puts the record on a NodeGroup.
func (r *record) write(group *v1alpha1.NodeGroup) {
	out, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("a record of launches cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	if group.Annotations == nil {
		group.Annotations = map[string]string{}
	}
	group.Annotations[v1alpha1.AutoscalerLaunchesAnnotation] = string(out)
}

// begin adds a launch.
func (r *record) begin(count int, now time.Time) {
	r.Last++
	r.Open = append(r.Open, launch{Number: r.Last, Count: count, Started: now})
}

// find returns the open launch of that number.
func (r *record) find(number int) *launch {
	if i := slices.IndexFunc(r.Open, func(l launch) bool { return l.Number == number }); i >= 0 {
		return &r.Open[i]
	}
	return nil
}

// close removes a launch.
func (r *record) close(number int) {
	r.Open = slices.DeleteFunc(r.Open, func(l launch) bool { return l.Number == number })
}

// answered records the cloud's response to a launch, which has made so many machines.
func (r *record) answered(number, made int, e *cloudprovider.Error) {
	l := r.find(number)
	switch {
	case l == nil || l.Refused != nil || l.GivenUp != nil:
		return // it was recorded already, or the autoscaler has given it up meanwhile
	case e == nil || made >= l.Count:
		r.close(number)
		return
	}
	l.Count -= made
	l.Refused = &refusal{Class: e.Class, Code: e.Code, Message: e.Message}
}

// missing returns how many more machines of the launch the autoscaler expects, after so many were made.
func (l *launch) missing(made int) int {
	switch {
	case l.GivenUp != nil:
		return 0
	case l.Refused != nil:
		return l.Count
	}
	return max(0, l.Count-made)
}

// unwanted reports whether a machine of the launch is to be terminated.
func (l *launch) unwanted(machine string) bool {
	return l.GivenUp != nil && !slices.Contains(l.Keep, machine)
}

// token of the launch's call.
func (l *launch) token(group *v1alpha1.NodeGroup) string { return state.Token(group.UID, l.Number) }

// giveUp removes count missing machines of a launch from the record. there has the names of its machines that were made. A launch in
// flight is given up as a whole, since it is all or nothing for the cloud.
func (r *record) giveUp(number, count int, there []string, now time.Time) error {
	l := r.find(number)
	if l == nil {
		return nil // given up already
	}
	missing := l.missing(len(there))
	switch {
	case missing == 0:
	case l.Refused == nil && count < missing:
		return fmt.Errorf("the launch of %d machines is all or nothing, and %d are missing: delete all of these, or none", l.Count, missing)
	case l.Refused == nil:
		l.GivenUp, l.Keep = &now, there
	case count < missing:
		l.Count -= count
	default:
		r.close(number)
	}
	return nil
}

// The ID of a missing machine has this form, which no cloud uses.
const missingScheme = "muster-launch://"

// missingID names a missing machine of a launch.
func missingID(group string, number, i int) string {
	return fmt.Sprintf("%s%s/%d/%d", missingScheme, group, number, i)
}

// launchOf returns the number of the launch of a missing machine of the group.
func launchOf(group, id string) (number int, ok bool) {
	rest, ok := strings.CutPrefix(id, missingScheme+group+"/")
	first, _, _ := strings.Cut(rest, "/")
	number, err := strconv.Atoi(first)
	return number, ok && err == nil
}
