package gcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The forms of calls and answers are held against the discovery documents with which Google generates its own client libraries: the
// methods with their parameters, and the fields of bodies with their types.

// schema of a value.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       string            `json:"type"`
	Format     string            `json:"format"`
	Enum       []string          `json:"enum"`
	Properties map[string]schema `json:"properties"`
	Additional *schema           `json:"additionalProperties"`
	Items      *schema           `json:"items"`
	// Annotations list the methods that require the field.
	Annotations struct {
		Required []string `json:"required"`
	} `json:"annotations"`
}

// method of a service.
type method struct {
	ID         string             `json:"id"`
	HTTPMethod string             `json:"httpMethod"`
	FlatPath   string             `json:"flatPath"`
	Parameters map[string]request `json:"parameters"`
	Request    schema             `json:"request"`
	Response   schema             `json:"response"`

	service *service
	path    *regexp.Regexp
	depth   int
}

type request struct {
	Location string `json:"location"`
	Required bool   `json:"required"`
}

type resources map[string]struct {
	Methods   map[string]*method `json:"methods"`
	Resources resources          `json:"resources"`
}

// service is a discovery document.
type service struct {
	ServicePath string             `json:"servicePath"`
	Parameters  map[string]request `json:"parameters"`
	Schemas     map[string]schema  `json:"schemas"`
	Resources   resources          `json:"resources"`
}

// documents are those of the services that are called, in the module of Google's older client libraries.
var documents = []string{
	"compute/v1/compute-api.json", "cloudbilling/v1/cloudbilling-api.json", "cloudresourcemanager/v1/cloudresourcemanager-api.json",
}

// google reads the methods of all services, once.
var google = sync.OnceValues(func() (out []*method, err error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/api").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the discovery documents: %w", err)
	}
	for _, name := range documents {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), name))
		if err != nil {
			return nil, err
		}
		s := &service{}
		if err := json.Unmarshal(text, s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, s.methods(s.Resources)...)
	}
	return out, nil
})

var pathParameter = regexp.MustCompile(`\\\{[^}]*\\\}`)

func (s *service) methods(in resources) (out []*method) {
	for _, r := range in {
		for _, m := range r.Methods {
			m.service = s
			m.path = regexp.MustCompile("^/" + pathParameter.ReplaceAllString(regexp.QuoteMeta(s.ServicePath+m.FlatPath), `[^/:]+`) + "$")
			m.depth = strings.Count(s.ServicePath+m.FlatPath, "/") + 1
			out = append(out, m)
		}
		out = append(out, s.methods(r.Resources)...)
	}
	return out
}

// beta are the calls of which no document is in the module.
var beta = regexp.MustCompile(`^/compute/beta/.*/advice/capacity$`)

// undocumented are what the documents lack, each with its why.
var undocumented = map[string]string{
	`status is "PENDING_STOP"`:         "of the page about graceful shutdown; the document lags behind it",
	`instanceStatus is "PENDING_STOP"`: "of the page about graceful shutdown; the document lags behind it",

	"there is no parameter noGracefulShutdown":     "the messages of the client library have it, which are younger",
	"scheduling has no field terminationTimestamp": "the messages of the client library have it, which are younger",
}

// sampled is how many calls of a method are held against the documents in a test.
const sampled = 20

// forms are the calls of a lab that differ from the documents.
type forms struct {
	mu    sync.Mutex
	seen  map[string]int
	wrong map[string]bool
}

// hold judges the calls to a handler and its answers.
func (f *forms) hold(h http.Handler) http.Handler {
	f.seen, f.wrong = map[string]int{}, map[string]bool{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		copied := &copied{ResponseWriter: w}
		defer func() { f.judge(r, body, copied) }()
		h.ServeHTTP(copied, r)
	})
}

// copied is an answer of which a copy is kept.
type copied struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (c *copied) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *copied) Write(b []byte) (int, error) {
	c.body.Write(b)
	return c.ResponseWriter.Write(b)
}

// judge a call.
func (f *forms) judge(r *http.Request, body []byte, answer *copied) {
	methods, err := google()
	if err != nil {
		f.differ("", err.Error())
		return
	}
	// There are a thousand methods, and most differ in this already.
	depth := strings.Count(r.URL.Path, "/")
	i := slices.IndexFunc(methods, func(m *method) bool {
		return m.HTTPMethod == r.Method && m.depth == depth && m.path.MatchString(r.URL.Path)
	})
	if i < 0 {
		if !beta.MatchString(r.URL.Path) {
			f.differ("", fmt.Sprintf("there is no method %s %s", r.Method, r.URL.Path))
		}
		return
	}
	m := methods[i]
	f.mu.Lock()
	f.seen[m.ID]++
	over := f.seen[m.ID] > sampled
	f.mu.Unlock()
	if over {
		return
	}
	for name := range r.URL.Query() {
		if m.Parameters[name].Location != "query" && m.service.Parameters[name].Location != "query" {
			f.differ(m.ID, "there is no parameter "+name)
		}
	}
	f.judgeBody(m, "the call", m.Request, body, true)
	if answer.status == 0 && answer.body.Len() > 0 {
		f.judgeBody(m, "the answer", m.Response, answer.body.Bytes(), false)
	}
}

func (f *forms) judgeBody(m *method, what string, s schema, body []byte, called bool) {
	if len(body) == 0 {
		return
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		f.differ(m.ID, what+" is no JSON: "+err.Error())
		return
	}
	m.check(s, v, "", called, func(text string) { f.differ(m.ID, what+": "+text) })
}

func (f *forms) differ(id, text string) {
	for known := range undocumented {
		if strings.HasSuffix(text, known) {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong[id+": "+text] = true
}

// all are the differences, in order.
func (f *forms) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.wrong))
}

// check a value by its schema. Fields that a call needs are missed only in calls.
func (m *method) check(s schema, v any, at string, called bool, differ func(string)) {
	for s.Ref != "" {
		s = m.service.Schemas[s.Ref]
	}
	is := func(ok bool) {
		if !ok {
			differ(fmt.Sprintf("%s is %v, and must be of type %s %s", at, v, s.Type, s.Format))
		}
	}
	switch s.Type {
	case "object":
		fields, ok := v.(map[string]any)
		is(ok)
		for name, value := range fields {
			of, known := s.Properties[name]
			switch {
			case known:
				m.check(of, value, name, called, differ)
			case s.Additional != nil:
				m.check(*s.Additional, value, at+".*", called, differ)
			default:
				differ(fmt.Sprintf("%s has no field %s", at, name))
			}
		}
		for name, of := range s.Properties {
			if called && fields[name] == nil && slices.Contains(of.Annotations.Required, m.ID) {
				differ(fmt.Sprintf("%s lacks %s", at, name))
			}
		}
	case "array":
		items, ok := v.([]any)
		is(ok)
		for _, item := range items {
			m.check(*s.Items, item, at, called, differ)
		}
	case "string":
		text, ok := v.(string)
		is(ok)
		if s.Format == "int64" || s.Format == "uint64" {
			_, errSigned := strconv.ParseInt(text, 10, 64)
			_, errUnsigned := strconv.ParseUint(text, 10, 64)
			is(errSigned == nil || errUnsigned == nil)
		}
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, text) {
			differ(fmt.Sprintf("%s is %q", at, text))
		}
	case "integer", "number":
		_, ok := v.(json.Number)
		is(ok)
	case "boolean":
		_, ok := v.(bool)
		is(ok)
	}
}

// serve returns the address of a server whose calls and answers have the forms of Google's.
func (l *lab) serve(h http.Handler) string {
	l.Helper()
	// The documents take longer to read than a call of a lab may last.
	if _, err := google(); err != nil {
		l.Fatal(err)
	}
	f := &forms{}
	server := httptest.NewServer(f.hold(h))
	l.Cleanup(func() {
		server.Close()
		for _, difference := range f.all() {
			l.Errorf("Google's discovery document says otherwise: %s", difference)
		}
	})
	return server.URL
}
