package aws

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/time/rate"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// perSecond and burst bound the calls of a Provider, well below what AWS grants
	// an account for calls that change something, since others call too.
	perSecond = 10
	burst     = 100
	// longestBackoff between tries of one call: the caller has more to do, and may repeat the
	// token.
	longestBackoff = 2 * time.Second
)

// newRetryer returns a retryer that leaves refusals alone: AWS counts a lack of
// capacity among its own errors (5xx), which the SDK would try again and again.
func newRetryer(unpaced bool, change ...func(*retry.StandardOptions)) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxBackoff = longestBackoff
		if unpaced {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		}
		final := retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			var api smithy.APIError
			if errors.As(err, &api) {
				if class, known := classes[api.ErrorCode()]; known && class != v1alpha1.Throttle {
					return aws.FalseTernary
				}
			}
			return aws.UnknownTernary
		})
		o.Retryables = append([]retry.IsErrorRetryable{final}, o.Retryables...)
		for _, f := range change {
			f(o)
		}
	})
}

const (
	// tagTries is how often a call that tags machines is tried: over a quarter of a minute, if it fails at once. The launch is
	// repeated after that.
	tagTries = 8
	// firstTagBackoff and longestTagBackoff are the first and the longest pause between two tries.
	firstTagBackoff, longestTagBackoff = 250 * time.Millisecond, 4 * time.Second
)

// untilKnown has a call about machines that were made a moment ago tried again until AWS knows them everywhere.
func (p *Provider) untilKnown(o *ec2.Options) {
	o.Retryer = newRetryer(p.config.unpaced, func(o *retry.StandardOptions) {
		o.MaxAttempts = tagTries
		if !p.config.unpaced {
			o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
				return min(firstTagBackoff<<max(0, attempt-1), longestTagBackoff), nil
			})
		}
		unknown := retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			if hasCode(err, "InvalidInstanceID.NotFound") {
				return aws.TrueTernary
			}
			return aws.UnknownTernary
		})
		o.Retryables = append([]retry.IsErrorRetryable{unknown}, o.Retryables...)
	})
}

// limiter is the client's side of throttling.
type limiter struct{ *rate.Limiter }

func newLimiter() limiter { return limiter{rate.NewLimiter(perSecond, burst)} }

// addTo lets each try of a call wait for its turn.
func (l limiter) addTo(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("MusterLimiter", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if err := l.Wait(ctx); err != nil {
			return middleware.FinalizeOutput{}, middleware.Metadata{}, err
		}
		return next.HandleFinalize(ctx, in)
	}), "Retry", middleware.After)
}

// permit says in the moment in which a call goes out whether it may.
type permit func() error

// addTo asks before each try of a call that changes something, after the wait for its
// turn.
func (p permit) addTo(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("MusterPermit", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if name := awsmiddleware.GetOperationName(ctx); !strings.HasPrefix(name, "Describe") && !strings.HasPrefix(name, "Get") {
			if err := p(); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, err
			}
		}
		return next.HandleFinalize(ctx, in)
	}), middleware.After)
}
