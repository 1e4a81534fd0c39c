package provisioning

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// dollars renders an amount rounded up to cents, or, from 100 USD on, to dollars, so
// that it is not another one every second.
func dollars(micro int64) string {
	unit := int64(1e4)
	if micro >= 100e6 {
		unit = 1e6
	}
	micro = (micro + unit - 1) / unit
	if unit == 1e6 {
		return strconv.FormatInt(micro, 10)
	}
	return fmt.Sprintf("%d.%02d", micro/100, micro%100)
}

// USD renders millionths of a USD with as many digits as it takes, two at least.
func USD(micro int64) string {
	s := fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6)
	for len(s) > 0 && s[len(s)-1] == '0' && s[len(s)-3] != '.' {
		s = s[:len(s)-1]
	}
	return s
}

func pods(n int) string { return plural(n, "pod") }

func nodes(n int) string { return plural(n, "node") }

func machines(n int) string { return plural(n, "machine") }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// earliest is the first of the times, those that are zero left out.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// and adds what is known of strangers to a message.
func and(message, stranger string) string {
	if stranger == "" {
		return message
	}
	return message + "; " + stranger
}

// NoteLimit is what the note of an Event holds, in bytes.
const NoteLimit = 1024

// Clip shortens a message to at most limit bytes.
func Clip(s string, limit int) string {
	const dots = "…"
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(dots)], "") + dots
}
