package aws

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

// element of an answer: a text, or other elements.
type element struct {
	name string
	text string
	kids []element
}

// el is an element of a value, or of elements.
func el(name string, content ...any) element {
	e := element{name: name}
	for _, c := range content {
		switch c := c.(type) {
		case element:
			e.kids = append(e.kids, c)
		case []element:
			e.kids = append(e.kids, c...)
		case time.Time:
			e.text = c.UTC().Format("2006-01-02T15:04:05.000Z")
		default:
			e.text = fmt.Sprint(c)
		}
	}
	return e
}

// each makes a list's elements, all of one name.
func each[T any](name string, list []T, of func(T) []element) (out []element) {
	for _, v := range list {
		out = append(out, element{name: name, kids: of(v)})
	}
	return out
}

// texts makes a list's elements of strings.
func texts(name string, list []string) (out []element) {
	for _, v := range list {
		out = append(out, el(name, v))
	}
	return out
}

func (e element) write(b *strings.Builder) {
	b.WriteString("<" + e.name + ">")
	_ = xml.EscapeText(b, []byte(e.text)) // a Builder takes everything
	for _, k := range e.kids {
		k.write(b)
	}
	name, _, _ := strings.Cut(e.name, " ")
	b.WriteString("</" + name + ">")
}

func (e element) String() string {
	var b strings.Builder
	e.write(&b)
	return b.String()
}
