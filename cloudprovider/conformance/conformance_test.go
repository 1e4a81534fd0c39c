package conformance

import (
	"slices"
	"testing"
	"time"
)

// TestNoFaultIsLeftOutSilently: a cloud has each optional field, or says by its name why not, and never both.
func TestNoFaultIsLeftOutSilently(t *testing.T) {
	all := func() *Cloud {
		c := &Cloud{Without: map[string]string{}}
		for field := range c.lacks() {
			c.Without[field] = "this cloud has none"
		}
		return c
	}
	for _, tc := range []struct {
		name   string
		change func(*Cloud)
		want   []string
	}{
		{"all are left out, each for a reason", func(*Cloud) {}, nil},
		{"one is left out without", func(c *Cloud) { delete(c.Without, "Harm") },
			[]string{`Cloud.Harm is nil: set it, or say in Cloud.Without["Harm"] why the cloud has no such thing`}},
		{"an empty reason is none", func(c *Cloud) { c.Without["Slow"] = "" },
			[]string{`Cloud.Slow is nil: set it, or say in Cloud.Without["Slow"] why the cloud has no such thing`}},
		{"half of a fault is none", func(c *Cloud) {
			c.Harm = func(Harm, Calls) func() { return nil }
			delete(c.Without, "Harm")
		}, []string{`Cloud.Harm is nil: set it, or say in Cloud.Without["Harm"] why the cloud has no such thing`}},
		{"a reason for what is set", func(c *Cloud) { c.Delay = func(time.Duration) {} },
			[]string{`Cloud.Delay is set, and Cloud.Without["Delay"] says that it is not: this cloud has none`}},
		{"a name that is no field", func(c *Cloud) { c.Without["Harms"] = "a typing error" },
			[]string{`Cloud.Without["Harms"]: no optional field has that name`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := all()
			tc.change(c)
			if got := c.validate(); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
