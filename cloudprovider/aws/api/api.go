// Package api makes all calls to AWS. A call has a deadline, waits for its turn at a limiter, is made only while this process may act,
// is tried again where that helps, is counted, and fails with an error that has a class.
//
// The words: a try is one request; a call is the tries of one request. A try is answered if AWS has accepted or refused it. What a
// call has done after an unanswered attempt is unknown, until the call is repeated with its token or lists show it.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/time/rate"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// perSecond and burst bound the tries of a Client, well below what AWS grants
	// an account for calls that change something, since others call too.
	perSecond = 10
	burst     = 100
	// connectWithin bounds how long a connection may take to be made, and pingAfter how long one may be silent before it is tested.
	connectWithin = 5 * time.Second
	pingAfter     = 15 * time.Second
)

// timeouts is how long a try may take, and all tries of a call together.
type timeouts struct{ try, call time.Duration }

// A call that changes something may take AWS a minute. EKS is out of reach of some private networks, and discovery does without it.
var (
	forEKS     = timeouts{5 * time.Second, 5 * time.Second}
	forReads   = timeouts{20 * time.Second, 50 * time.Second}
	forChanges = timeouts{time.Minute, 110 * time.Second}
)

// Config of a Client. Credentials come from the SDK's default chain alone.
type Config struct {
	// Region, for example us-east-1.
	Region string
	// Endpoint replaces the addresses of all services; empty for those of AWS.
	Endpoint string
	// MayAct returns an error while another process may act in place of this one: nothing is changed then. nil means that there is
	// no other.
	MayAct func() error
	// Unpaced leaves out what waits by the clock of the machine: the backoff between tries, and the limiter.
	Unpaced bool
	// Timeout is how long a try may take; zero for what AWS needs.
	Timeout time.Duration
	// Transport stands in for the network, where a simulator runs in this process; nil for the network.
	Transport http.RoundTripper
}

// Client makes calls in one region.
type Client struct {
	config      Config
	ec2         *ec2.Client
	autoscaling *autoscaling.Client
	pricing     *pricing.Client
	quotas      *servicequotas.Client
	eks         *eks
	limiter     *rate.Limiter

	mu sync.Mutex
	// unknown are the tokens of launches with an unanswered attempt, and when it was made.
	unknown map[string]time.Time
	// ahead is how far the clock of the machine was ahead of that of AWS at the last answer.
	ahead time.Duration
}

// New returns a Client.
func New(ctx context.Context, c Config) (*Client, error) {
	out := &Client{config: c, limiter: rate.NewLimiter(perSecond, burst), unknown: map[string]time.Time{}}
	if c.Unpaced {
		out.limiter.SetLimit(rate.Inf)
	}
	transport := awshttp.NewBuildableClient().
		WithTimeout(out.timeouts("").call).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectWithin }).
		WithTransportOptions(func(t *http.Transport) {
			t.ResponseHeaderTimeout = out.timeouts("").try
			t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}
		})
	var sender config.HTTPClient = transport
	if c.Transport != nil {
		sender = &http.Client{Transport: c.Transport}
	}
	sdk, err := config.LoadDefaultConfig(ctx, config.WithRegion(c.Region), config.WithHTTPClient(sender),
		config.WithRetryer(func() aws.Retryer { return newRetryer(c.Unpaced) }),
		// What matters of it comes back as an error, too.
		config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, fmt.Errorf("configure AWS in region %s: %w", c.Region, err)
	}
	sdk.HTTPClient = whole{sdk.HTTPClient}
	sdk.APIOptions = append(sdk.APIOptions, out.addTries, out.addPermit, addPlainBody)
	if c.Endpoint != "" {
		sdk.BaseEndpoint = aws.String(c.Endpoint)
	}
	out.ec2, out.autoscaling, out.eks = ec2.NewFromConfig(sdk), autoscaling.NewFromConfig(sdk), newEKS(sdk)
	out.quotas = servicequotas.NewFromConfig(sdk)
	out.pricing = pricing.NewFromConfig(sdk, func(o *pricing.Options) { o.Region = pricingRegion(c.Region) })
	return out, nil
}

// whole takes an answer without a body, such as a proxy may give, for none: the SDK would read it as an empty list.
type whole struct{ aws.HTTPClient }

var errEmpty = errors.New("the answer is empty")

func (w whole) Do(r *http.Request) (*http.Response, error) {
	response, err := w.HTTPClient.Do(r)
	if err != nil || response.StatusCode != http.StatusOK || response.ContentLength != 0 {
		return response, err
	}
	_ = response.Body.Close()
	return nil, errEmpty
}

// pricingRegion is where the price list for a region is served.
func pricingRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	default:
		return "us-east-1"
	}
}

// timeouts for a call of that name.
func (c *Client) timeouts(call string) timeouts {
	switch {
	case c.config.Timeout > 0:
		return timeouts{c.config.Timeout, 2 * c.config.Timeout}
	case call == describeNodegroup:
		return forEKS
	case isRead(call):
		return forReads
	default:
		return forChanges
	}
}

func isRead(call string) bool {
	return strings.HasPrefix(call, "Describe") || strings.HasPrefix(call, "Get") || strings.HasPrefix(call, "List")
}

// addTries has each try of a call of the SDK take its turn, and bounds it.
func (c *Client) addTries(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("MusterTry", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (out middleware.FinalizeOutput, metadata middleware.Metadata, err error) {
		err = c.try(ctx, awsmiddleware.GetOperationName(ctx), func(ctx context.Context) (err error) {
			out, metadata, err = next.HandleFinalize(ctx, in)
			return err
		})
		if at, ok := awsmiddleware.GetServerTime(metadata); ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ahead = time.Since(at)
		}
		return out, metadata, err
	}), "Retry", middleware.After)
}

// imprecise is how far clocks may differ by the precision of answers, and by the time that they take.
const imprecise = 5 * time.Second

// clockAhead returns how far the local clock is ahead of the clock of AWS, by the dates of its responses. It is negative if the local
// clock is behind.
func (c *Client) clockAhead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead.Abs() < imprecise {
		return 0
	}
	return c.ahead
}

// Time converts a time of the local clock to the clock of AWS. Use it for every time that is compared with a time of AWS or with one that
// another process has written.
func (c *Client) Time(now time.Time) time.Time { return now.Add(-c.clockAhead()) }

// try makes one request.
func (c *Client) try(ctx context.Context, call string, send func(context.Context) error) error {
	if err := c.limiter.Wait(ctx); err != nil {
		if ctx.Err() == nil {
			err = &cloudprovider.Error{Class: v1alpha1.Throttle, Code: "TooManyCalls", Message: "too many calls of Muster's own wait for their turn"}
		}
		return err
	}
	within := c.timeouts(call).try
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	err := send(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = &noAnswer{within}
	}
	took := time.Since(began)
	var denied *notPermitted
	if errors.As(err, &denied) {
		return err
	}
	e, decided := classified(err)
	result := calls.OK
	if e != nil {
		result = string(e.Class)
	}
	calls.Observe(v1alpha1.ProviderAWS, call, result, took)
	if lost, ok := ctx.Value(lostTry{}).(*bool); ok && !decided {
		*lost = true
	}
	return err
}

// addPermit has each try of a call of the SDK that changes something made only while this process may act, judged in the moment in
// which it goes out.
func (c *Client) addPermit(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("MusterPermit", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if c.config.MayAct != nil && !isRead(awsmiddleware.GetOperationName(ctx)) {
			if err := c.config.MayAct(); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, &notPermitted{err}
			}
		}
		return next.HandleFinalize(ctx, in)
	}), middleware.After)
}

// addPlainBody hides that the body of a request can write itself. The SDK closes the body when the answer begins, also while the transport
// has not read its end. A body that writes itself reports its end as an error then, for which the transport closes the connection in
// the middle of the answer.
func addPlainBody(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("MusterPlainBody", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (out middleware.FinalizeOutput, metadata middleware.Metadata, err error) {
		if r, ok := in.Request.(*smithyhttp.Request); ok {
			if body, ok := r.GetStream().(io.ReadSeeker); ok {
				if in.Request, err = r.SetStream(struct{ io.ReadSeeker }{body}); err != nil {
					return out, metadata, err
				}
			}
		}
		return next.HandleFinalize(ctx, in)
	}), middleware.After)
}

// notPermitted is the error of a try that was not made, since another process may act.
type notPermitted struct{ cause error }

func (n *notPermitted) Error() string { return n.cause.Error() }

// do makes a call. Its error is Inconclusive unless AWS has refused the call.
func do[I, O, F any](ctx context.Context, c *Client, call string, send func(context.Context, *I, ...func(*F)) (*O, error), in *I,
	options ...func(*F)) (*O, error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeouts(call).call)
	defer cancel()
	out, err := send(bounded, in, options...)
	if err != nil {
		return nil, failure(ctx, call, err)
	}
	return out, nil
}

// beside makes a call that makes no machines: whatever its error is, it says nothing about a launch.
func beside[I, O, F any](ctx context.Context, c *Client, call string, send func(context.Context, *I, ...func(*F)) (*O, error), in *I,
	options ...func(*F)) (*O, error) {
	out, err := do(ctx, c, call, send, in, options...)
	return out, cloudprovider.Inconclusive(err)
}

// all makes a call for each page of a list.
func all[O, F, T any](ctx context.Context, c *Client, call string, pages interface {
	HasMorePages() bool
	NextPage(context.Context, ...func(*F)) (*O, error)
}, items func(*O) []T) (out []T, err error) {
	next := func(ctx context.Context, _ *struct{}, options ...func(*F)) (*O, error) {
		return pages.NextPage(ctx, options...)
	}
	for pages.HasMorePages() {
		page, err := beside(ctx, c, call, next, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, items(page)...)
	}
	return out, nil
}

// lostTry is the key of a *bool in the context of a launch: whether one of its tries was not answered.
type lostTry struct{}

// unknownFor is how long a launch with an unanswered attempt is remembered: longer than lists lag, and longer than it is repeated.
const unknownFor = time.Hour

// launch makes a call that makes machines, or holds places for them, and whose token has it done once. AWS judges the token only after
// the caller's rate and rights: where an earlier try was not answered, such a refusal does not show what that try has made.
func launch[I, O, F any](ctx context.Context, c *Client, call string, token *string,
	send func(context.Context, *I, ...func(*F)) (*O, error), in *I) (*O, error) {
	if token == nil {
		return do(ctx, c, call, send, in) // a dry run
	}
	lost := false
	out, err := do(context.WithValue(ctx, lostTry{}, &lost), c, call, send, in)
	refused := cloudprovider.Refusal(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, before := c.unknown[*token]
	unknown := err != nil && (refused == nil || (lost || before) && !judged(refused))
	if !unknown {
		delete(c.unknown, *token)
		return out, err
	}
	for token, at := range c.unknown {
		if time.Since(at) > unknownFor {
			delete(c.unknown, token)
		}
	}
	if lost || before {
		c.unknown[*token] = time.Now()
	}
	return nil, cloudprovider.Inconclusive(err)
}

// judged reports whether AWS refused a call for what it requests, rather than for its rate or its rights.
func judged(refused *cloudprovider.Error) bool {
	return refused.Class != v1alpha1.Throttle && refused.Class != v1alpha1.Auth
}
