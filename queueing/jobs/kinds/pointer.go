package kinds

import (
	"fmt"
	"strconv"
	"strings"
)

// pointer is a JSON pointer to a field below objects and lists.
type pointer []string

// parsePointer reads a JSON pointer; empty is the whole.
func parsePointer(text string) (pointer, error) {
	if text == "" {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(text, "/")
	if !ok {
		return nil, fmt.Errorf("%q is not a JSON pointer; it must start with /, like /spec/suspend", text)
	}
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		if part == "" {
			return nil, fmt.Errorf("%q is not a JSON pointer: part %d is empty; correct it", text, i+1)
		}
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return parts, nil
}

// get returns what the pointer points to; ok is false where there is nothing.
func (p pointer) get(in any) (out any, ok bool) {
	for _, part := range p {
		switch x := in.(type) {
		case map[string]any:
			if in, ok = x[part]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(x) {
				return nil, false
			}
			in = x[i]
		default:
			return nil, false
		}
	}
	return in, in != nil
}

// set makes value what the pointer points to, with the objects above it; nil removes the
// field. Of lists only elements that exist can be pointed into.
func (p pointer) set(in map[string]any, value any) {
	var at any = in
	for i, part := range p {
		last := i == len(p)-1
		switch x := at.(type) {
		case map[string]any:
			switch next, ok := x[part]; {
			case last && value == nil:
				delete(x, part)
			case last:
				x[part] = value
			case (!ok || next == nil) && value == nil:
				return
			case !ok || next == nil:
				x[part] = map[string]any{}
			}
			at = x[part]
		case []any:
			j, err := strconv.Atoi(part)
			if err != nil || j < 0 || j >= len(x) {
				return
			}
			if last {
				x[j] = value
			}
			at = x[j]
		default:
			return
		}
	}
}

// CEL of the field that the pointer points to, optional at each step below root.
func (p pointer) optional(root string) string {
	out := root
	for _, part := range p {
		out += ".?" + part
	}
	return out
}
