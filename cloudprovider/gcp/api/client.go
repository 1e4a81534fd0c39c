// Package api makes every call of Muster to Google Cloud. A call has a deadline, waits for its turn, is sent only while this
// process may act, and is counted. Its error has a class, see cloudprovider.Error. An error that leaves the effect of a launch open
// is Inconclusive.
//
// Requests and answers are the messages of Google's client library for Compute Engine. Its methods are not used: they repeat failed
// reads for up to ten minutes, and its lists ignore the context.
package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/time/rate"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Transport sends a request, and returns its answer.
type Transport = http.RoundTripper

// Config is what a Client works with.
type Config struct {
	// Endpoint stands for all of Google's services, without credentials: that of a simulator. Empty for the real ones, with the
	// credentials of the environment.
	Endpoint string
	// CallsPerSecond bounds the calls; Burst is how many may come at once.
	CallsPerSecond, Burst int
	// Timeout bounds the time from when a call is sent to the end of its answer. A wait for an operation may take longer by
	// operationWait.
	Timeout time.Duration
	// MayAct returns an error while another process may act in place of this one: nothing but reads is sent then. nil means that
	// there is no other.
	MayAct func() error
	// Transport stands in for the network, where a simulator runs in this process; nil for the network.
	Transport Transport
	Clock     clock.PassiveClock
}

// Client of Google Cloud.
type Client struct {
	config  Config
	http    *http.Client
	limiter *rate.Limiter
	// ahead is by how many nanoseconds the clock of the cloud is ahead, by its last answer.
	ahead atomic.Int64
}

const scope = "https://www.googleapis.com/auth/cloud-platform"

// New returns a Client. It makes no call.
func New(ctx context.Context, config Config) (*Client, error) {
	auth := option.WithoutAuthentication()
	if config.Endpoint == "" {
		// A token service that hangs must not outlive the calls that wait for it.
		ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: newTransport(), Timeout: config.Timeout})
		credentials, err := google.FindDefaultCredentials(ctx, scope)
		if err != nil {
			return nil, fmt.Errorf("finding credentials for Google Cloud: %w", err)
		}
		credentials.TokenSource = &promptSource{credentials.TokenSource, config.Timeout}
		auth = option.WithCredentials(credentials)
	}
	network := config.Transport
	if network == nil {
		network = newTransport()
	}
	transport, err := htransport.NewTransport(ctx, network, auth, option.WithUserAgent("muster"))
	if err != nil {
		return nil, fmt.Errorf("making a client for Google Cloud: %w", err)
	}
	return &Client{
		config: config, http: &http.Client{Transport: transport},
		limiter: rate.NewLimiter(rate.Limit(config.CallsPerSecond), config.Burst),
	}, nil
}

// newTransport returns a transport that gives up what does not connect, and connections that have died.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.MaxIdleConnsPerHost = 100
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}

// promptSource is a source of tokens that answers in time: others take no context.
type promptSource struct {
	oauth2.TokenSource
	timeout time.Duration
}

// Token implements oauth2.TokenSource.
func (s *promptSource) Token() (*oauth2.Token, error) {
	var token *oauth2.Token
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		token, err = s.TokenSource.Token()
	}()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case <-done:
		return token, err
	case <-timer.C:
		return nil, fmt.Errorf("the token service has not answered in %s", s.timeout)
	}
}

// Now is the time by the clock of the cloud, to the second.
func (c *Client) Now() time.Time { return c.config.Clock.Now().Add(time.Duration(c.ahead.Load())) }

// setTime takes the time of the cloud from the header of an answer.
func (c *Client) setTime(h http.Header) {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		c.ahead.Store(int64(at.Sub(c.config.Clock.Now())))
	}
}

// The hosts of the services.
const (
	computeHost  = "https://compute.googleapis.com"
	billingHost  = "https://cloudbilling.googleapis.com"
	projectsHost = "https://cloudresourcemanager.googleapis.com"
)

// request is one call.
type request struct {
	// action is the method as Google names it, for example instances.bulkInsert.
	action string
	// kind decides whether the call needs a permit, what its error means, and its deadline.
	kind       kind
	verb, host string
	path       string
	query      url.Values
	// body is sent as JSON; nil for none.
	body any
}

// kind of a call.
type kind int

const (
	// read changes nothing. Its error is Inconclusive.
	read kind = iota
	// change may be refused. It is sent only while this process may act.
	change
	// wait is a read that the cloud answers when an operation is done.
	wait
)

// operationWait is how long the cloud keeps a call that waits for an operation.
const operationWait = 2 * time.Minute

// compute returns a call to Compute Engine, with a path below that of the project.
func compute(action string, kind kind, verb, project string, path ...string) *request {
	return &request{action: action, kind: kind, verb: verb, host: computeHost, query: url.Values{},
		path: "/compute/v1/projects/" + project + "/" + strings.Join(path, "/")}
}

// with adds a parameter. One without a value is left out.
func (r *request) with(key, value string) *request {
	if value != "" {
		r.query.Set(key, value)
	}
	return r
}

// call makes a call and decodes its answer.
func (c *Client) call(ctx context.Context, r *request, into any) error {
	if err := c.limiter.Wait(ctx); err != nil {
		return cloudprovider.Inconclusive(fmt.Errorf("waiting to call %s: %w", r.action, err))
	}
	if r.kind == change && c.config.MayAct != nil {
		if err := c.config.MayAct(); err != nil {
			return cloudprovider.Inconclusive(fmt.Errorf("%s is not called: %w", r.action, err))
		}
	}
	began := c.config.Clock.Now()
	err := c.send(ctx, r, into)
	if err == nil {
		calls.Observe(v1alpha1.ProviderGCP, r.action, calls.OK, c.config.Clock.Since(began))
		return nil
	}
	f := failureOf(ctx, err)
	calls.Observe(v1alpha1.ProviderGCP, r.action, f.result(), c.config.Clock.Since(began))
	if r.kind == change && f.definite {
		return f
	}
	return cloudprovider.Inconclusive(f)
}

func (c *Client) send(ctx context.Context, r *request, into any) error {
	timeout := c.config.Timeout
	if r.kind == wait {
		timeout += operationWait
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := encode(r.body)
	if err != nil {
		return err
	}
	at := cmp.Or(c.config.Endpoint, r.host) + r.path
	if len(r.query) > 0 {
		at += "?" + r.query.Encode()
	}
	out, err := http.NewRequestWithContext(ctx, r.verb, at, bytes.NewReader(body))
	if err != nil {
		return err
	}
	out.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(out)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	c.setTime(answer.Header)
	if err := googleapi.CheckResponse(answer); err != nil {
		return err
	}
	if body, err = io.ReadAll(answer.Body); err != nil {
		return err
	}
	return decode(body, into)
}

func encode(body any) ([]byte, error) {
	switch body := body.(type) {
	case nil:
		return nil, nil
	case proto.Message:
		return protojson.Marshal(body)
	default:
		return json.Marshal(body)
	}
}

func decode(body []byte, into any) error {
	if message, ok := into.(proto.Message); ok {
		return protojson.UnmarshalOptions{AllowPartial: true, DiscardUnknown: true}.Unmarshal(body, message)
	}
	return json.Unmarshal(body, into)
}

// paged is a page of a list.
type paged interface {
	proto.Message
	GetNextPageToken() string
}

// pages calls for all pages of a list. newPage returns one to decode into.
func pages[P paged](ctx context.Context, c *Client, r *request, newPage func() P) (out []P, err error) {
	for {
		page := newPage()
		if err := c.call(ctx, r, page); err != nil {
			return nil, err
		}
		if out = append(out, page); page.GetNextPageToken() == "" {
			return out, nil
		}
		r.with("pageToken", page.GetNextPageToken())
	}
}

// all returns the items of all pages of a list.
func all[P paged, T any](ctx context.Context, c *Client, r *request, newPage func() P, items func(P) []T) (out []T, err error) {
	found, err := pages(ctx, c, r, newPage)
	for _, page := range found {
		out = append(out, items(page)...)
	}
	return out, err
}

// Base is the last part of a link.
func Base(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

// Region of a zone: us-central1 for us-central1-a.
func Region(zone string) string {
	if i := strings.LastIndexByte(zone, '-'); i > 0 {
		return zone[:i]
	}
	return zone
}

// Zone in the link of an instance.
func Zone(link string) string {
	_, rest, ok := strings.Cut(link, "zones/")
	if !ok {
		return ""
	}
	zone, _, _ := strings.Cut(rest, "/")
	return zone
}

// Path of a link, from the zone on: what calls take as the name of an instance.
func Path(link string) string {
	if i := strings.Index(link, "zones/"); i >= 0 {
		return link[i:]
	}
	return link
}
