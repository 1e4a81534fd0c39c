package gcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Front is the front end of one project.
type Front struct {
	world  *cloudsim.World
	config Config
	mux    *http.ServeMux
	// began is the beginning of the world.
	began time.Time
	// actions by the pattern of the mux.
	actions map[string]string

	// mu guards what follows. Its holder may call the world, never the reverse.
	mu     sync.Mutex
	vms    map[string]*vm // by zone/name
	names  map[string]int // how often a name has been used
	groups []*group
	// policies are the compact placement policies that calls have made, by region/name.
	policies map[string]*policy
	ops      map[string]*operation
	// requests are the operations by the requestId of the call.
	requests map[string]*operation
	// used are the permissions that calls have needed.
	used map[string]bool
}

var _ cloudsim.Front = (*Front)(nil)

// New returns a front end of the world.
func New(config Config, world *cloudsim.World) (*Front, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	f := &Front{
		world: world, config: config, began: world.Now(), mux: http.NewServeMux(), actions: map[string]string{},
		vms: map[string]*vm{}, policies: map[string]*policy{}, names: map[string]int{}, ops: map[string]*operation{},
		requests: map[string]*operation{}, used: map[string]bool{},
	}
	for i := range config.Groups {
		f.groups = append(f.groups, newGroup(&f.config.Groups[i]))
	}
	slices.SortFunc(f.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.location(), b.location()), cmp.Compare(a.Name, b.Name))
	})
	f.routes()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	return f, nil
}

// Cloud implements cloudsim.Front.
func (f *Front) Cloud() v1alpha1.Provider { return v1alpha1.ProviderGCP }

// Action implements cloudsim.Front: the call by the name of its method in the
// cloud's API, for example instances.bulkInsert.
func (f *Front) Action(r *http.Request) string {
	_, pattern := f.mux.Handler(r)
	return cmp.Or(f.actions[pattern], "unknown")
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.date(w)
	if _, pattern := f.mux.Handler(r); f.actions[pattern] == "" {
		f.Refuse(w, r, refusal(http.StatusNotFound, "notFound", "The requested URL %s was not found on this server.", r.URL.Path))
		return
	}
	f.mux.ServeHTTP(w, r)
}

// date sets the time of the cloud in the header of an answer.
func (f *Front) date(w http.ResponseWriter) {
	w.Header().Set("Date", f.world.Now().UTC().Format(http.TimeFormat))
}

// call is a call on its way, with what each method may use of it.
type call struct {
	*http.Request
	body []byte
}

// read decodes the body. Unknown fields are refused.
func (c *call) read(into any) *cloudsim.Error {
	if len(c.body) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(c.body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return refusal(http.StatusBadRequest, "invalid", "Invalid JSON payload received. %v", err)
	}
	return nil
}

// method answers a call, with the lock held and the world settled.
type method struct {
	action string
	// permission that the caller needs, with additional ones.
	permission string
	// query are the supported query parameters.
	query []string
	serve func(*call) (any, *cloudsim.Error)
}

var (
	lists   = []string{"filter", "maxResults", "pageToken", "includeAllScopes", "returnPartialSuccess"}
	changes = []string{"requestId"}
	// deletions may skip the time that a template gives to a workload to end.
	deletions = []string{"requestId", "noGracefulShutdown"}
)

// handle adds a method.
func (f *Front) handle(pattern string, m method) {
	f.actions[pattern] = m.action
	f.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		answer, refused := f.answer(m, r)
		if refused != nil {
			f.Refuse(w, r, refused)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		_ = json.NewEncoder(w).Encode(answer)
	})
}

func (f *Front) answer(m method, r *http.Request) (any, *cloudsim.Error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, refusal(http.StatusBadRequest, "invalid", "The body cannot be read: %v", err)
	}
	for name := range r.URL.Query() {
		// These two come with every call of the client libraries.
		if name != "alt" && name != "prettyPrint" && !slices.Contains(m.query, name) {
			return nil, refusal(http.StatusBadRequest, "invalid", "Invalid JSON payload received. Unknown name %q: Cannot bind query parameter.",
				name)
		}
	}
	if project := r.PathValue("project"); project != "" && project != f.config.Project {
		return nil, notFound("projects/" + project)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.permission != "" {
		if refused := f.need("projects/"+f.config.Project, append([]string{m.permission}, beside[m.action]...)...); refused != nil {
			return nil, refused
		}
	}
	for _, place := range []string{r.PathValue("zone"), r.PathValue("region")} {
		if slices.Contains(f.config.Unreachable, place) {
			return nil, refusal(http.StatusServiceUnavailable, "backendError", "Backend Error")
		}
	}
	f.settle()
	c := &call{Request: r, body: body}
	if e := cloudsim.FailureOf(r.Context()); e != nil && slices.Contains(m.query, "requestId") { // others make no operation
		m.serve = func(c *call) (any, *cloudsim.Error) {
			op := f.begin(m.action, scopeOf(c))
			op.err = &opError{e.Code, e.Message}
			return f.operation(op), nil
		}
	}
	if id := r.URL.Query().Get("requestId"); id != "" {
		return f.once(id, m, c)
	}
	return m.serve(c)
}

// validUUID accepts the versions of RFC 4122. The cloud's documentation requires a valid UUID without naming a version, so the simulated
// cloud accepts no more than these.
var validUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// rememberRequests is how long the cloud remembers the requestId of a call.
const rememberRequests = time.Hour

// once answers a call that has come before with the operation of that time.
func (f *Front) once(id string, m method, c *call) (any, *cloudsim.Error) {
	if !validUUID.MatchString(id) {
		return nil, invalid("requestId", id, "The request ID must be a valid UUID, and not zero.")
	}
	print := c.Method + " " + c.URL.Path + " " + string(canonical(c.body))
	if op := f.requests[id]; op != nil && f.world.Now().Sub(op.began) < rememberRequests {
		if op.print != print {
			return nil, invalid("requestId", id, "The request ID was used for a different request.")
		}
		return f.operation(op), nil
	}
	answer, refused := m.serve(c)
	if op, ok := answer.(*operationJSON); ok {
		f.ops[op.Name].print = print
		f.requests[id] = f.ops[op.Name]
	}
	return answer, refused
}

// canonical is a body without what encoders are free to vary.
func canonical(body []byte) []byte {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return body
	}
	out, err := json.Marshal(v)
	return errorless(out, err)
}

func errorless(out []byte, err error) []byte {
	if err != nil {
		panic(errors.Join(errors.New("what was decoded a moment ago cannot be encoded"), err))
	}
	return out
}

// SetUnreachable sets the zones and regions that are away.
func (f *Front) SetUnreachable(places ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config.Unreachable = places
}

// isAway reports whether a zone or region, or the scope zones/… or regions/… of one, is away.
func (f *Front) isAway(scope string) bool {
	return slices.Contains(f.config.Unreachable, scope[strings.LastIndexByte(scope, '/')+1:])
}

// scopes are the zones and regions that have groups.
func (f *Front) scopes() (out []string) {
	for _, g := range f.groups {
		for _, zone := range append([]string{g.Zone}, g.Zones...) {
			if zone != "" {
				out = append(out, "zones/"+zone, "regions/"+regionOf(zone))
			}
		}
	}
	return out
}

// aggregated is a list of all zones and regions, given their items. It fails where one is away, unless the caller takes a part.
func aggregated[T any](f *Front, c *call, kind string, items map[string]T, next string) (any, *cloudsim.Error) {
	out := map[string]any{}
	for _, scope := range f.scopes() {
		out[scope] = map[string]any{"warning": map[string]string{"code": "NO_RESULTS_ON_PAGE",
			"message": "There are no results for scope '" + scope + "' on this page."}}
	}
	for scope, item := range items {
		if !f.isAway(scope) {
			out[scope] = item
		}
	}
	answer := map[string]any{"kind": kind, "items": out}
	if next != "" {
		answer["nextPageToken"] = next
	}
	if len(f.config.Unreachable) == 0 {
		return answer, nil
	}
	if c.URL.Query().Get("returnPartialSuccess") != "true" {
		return nil, refusal(http.StatusServiceUnavailable, "backendError", "Backend Error")
	}
	var links []string
	for _, place := range f.config.Unreachable {
		scope := "zones/" + place
		if strings.Count(place, "-") < 2 {
			scope = "regions/" + place
		}
		out[scope] = map[string]any{"warning": map[string]string{"code": "UNREACHABLE", "message": "The scope is unreachable."}}
		links = append(links, f.link(scope))
	}
	answer["unreachables"] = links
	return answer, nil
}

// page cuts a page out of items, and says where the next one begins.
func page[T any](f *Front, c *call, items []T) (out []T, next string, refused *cloudsim.Error) {
	q := c.URL.Query()
	size := cmp.Or(f.config.PageSize, 500)
	if s := q.Get("maxResults"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 500 {
			return nil, "", invalid("maxResults", s, "Must be between 1 and 500.")
		}
		size = min(size, n)
	}
	from := 0
	if s := q.Get("pageToken"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > len(items) {
			return nil, "", invalid("pageToken", s, "The page token is not valid.")
		}
		from = n
	}
	to := min(from+size, len(items))
	if to < len(items) {
		next = strconv.Itoa(to)
	}
	return items[from:to], next, nil
}
