package stream

import (
	"crypto/sha256"
	"runtime"
	"slices"
	"sync"
	"unsafe"
	"weak"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// shared are lists by the text that they were decoded from, each for as long as an object has it. What a job runs is most of its
// Workload, and stands in every event of it, often in those of other jobs, too: so it is decoded once and kept once. Like all that
// a cache holds, it is not to be changed.
type shared[T any] struct {
	mu    sync.Mutex
	lists map[digest]list[T]
}

// digest is of a list's text. It is cryptographic, since lists of one digest are taken for the same.
type digest [sha256.Size]byte

// list is a slice that may be gone.
type list[T any] struct {
	first weak.Pointer[T]
	size  int
}

func newShared[T any]() *shared[T] { return &shared[T]{lists: map[digest]list[T]{}} }

// decode decodes a list, or finds the one that came from the same text.
func (s *shared[T]) decode(d *jsontext.Decoder, out *[]T) error {
	text, err := d.ReadValue()
	if err != nil {
		return err
	}
	of := digest(sha256.Sum256(text))
	if *out = s.find(of); *out != nil {
		return nil
	}
	if err := json.Unmarshal(text, out, plain); err != nil || len(*out) == 0 {
		return err
	}
	*out = slices.Clip(*out) // an append must not write behind what others have
	s.keep(of, *out)
	return nil
}

func (s *shared[T]) find(of digest) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lists[of]
	first := l.first.Value()
	if first == nil {
		return nil
	}
	return unsafe.Slice(first, l.size) //nolint:gosec // it is the slice that keep was given
}

func (s *shared[T]) keep(of digest, items []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[of] = list[T]{weak.Make(&items[0]), len(items)}
	runtime.AddCleanup(&items[0], s.forget, of)
}

// forget removes a list that is gone, unless another one has come from the same text.
func (s *shared[T]) forget(of digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lists[of]; l.first.Value() == nil {
		delete(s.lists, of)
	}
}
