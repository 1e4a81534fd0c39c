package fit

import "fmt"

// Refusal says why a podSet gets no Pod; the zero value says that it does.
type Refusal struct {
	Kind RefusalKind
	// Field of the template that it is about, such as spec.nodeName.
	Field string
	// Message is for people: podSet, field, what is wrong and what to do.
	Message string
}

// RefusalKind says what could change the refusal.
type RefusalKind int

const (
	// NotRefused: there is a Pod.
	NotRefused RefusalKind = iota
	// Unsupported features cannot be judged: only another template helps.
	Unsupported
	// Unready objects that the pods need are missing or on their way: waiting helps.
	Unready
	// Impossible pods no scheduler would place: only another template helps.
	Impossible
)

// Refused reports whether there is no Pod.
func (r Refusal) Refused() bool { return r.Kind != NotRefused }

// unsupported refuses a feature; the fix says what to write instead.
func unsupported(field, what, fix string) Refusal {
	return Refusal{Unsupported, field, fmt.Sprintf("uses %s (%s), which Muster cannot judge: %s", field, what, fix)}
}

func unready(field, what string) Refusal {
	return Refusal{Unready, field, fmt.Sprintf("waits for %s (%s)", what, field)}
}

func impossible(field, what string) Refusal {
	return Refusal{Impossible, field, fmt.Sprintf("can never run: %s (%s)", what, field)}
}
