package text

import (
	"fmt"
	"strconv"
	"strings"
)

// Dollars renders an amount rounded up to cents, or, from 100 USD on, to dollars, so
// that it is not another one every second.
func Dollars(micro int64) string {
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

// Pods, Nodes and Machines format a number of them.
func Pods(n int) string { return Plural(n, "pod") }

func Nodes(n int) string { return Plural(n, "node") }

func Machines(n int) string { return Plural(n, "machine") }

// Plural formats a number of something in the singular.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// NoteLimit is the maximum size of the note of an Event, in bytes.
const NoteLimit = 1024

// Clip shortens a message to at most limit bytes.
func Clip(s string, limit int) string {
	const dots = "…"
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(dots)], "") + dots
}
