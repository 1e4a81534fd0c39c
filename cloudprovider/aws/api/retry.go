package api

import (
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"github.com/muster-dev/muster/cloudprovider"
)

// longestBackoff between tries of one call: the caller has more to do, and may repeat the
// token.
const longestBackoff = 2 * time.Second

// newRetryer returns a retryer that leaves refusals alone: AWS counts a lack of
// capacity among its own errors (5xx), which the SDK would try again and again.
func newRetryer(unpaced bool, change ...func(*retry.StandardOptions)) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxBackoff = longestBackoff
		o.RateLimiter = ratelimit.None // the limiter of the Client is for tries, too
		if unpaced {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		}
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(retryable)}, o.Retryables...)
		for _, f := range change {
			f(o)
		}
	})
}

// retryable leaves to the SDK what is neither a refusal nor unanswered.
func retryable(err error) aws.Ternary {
	var answer smithy.APIError
	var silent *noAnswer
	var denied *notPermitted
	var own *cloudprovider.Error
	switch {
	case errors.As(err, &silent):
		return aws.TrueTernary
	case errors.As(err, &denied), errors.As(err, &own):
		return aws.FalseTernary
	case errors.As(err, &answer):
		if e, _ := classified(err); !e.Passes() {
			return aws.FalseTernary
		}
	}
	return aws.UnknownTernary
}

const (
	// TagTries is how often a call that tags machines is tried: over a quarter of a minute, if it fails at once. The launch is
	// repeated after that.
	TagTries = 8
	// firstTagBackoff and longestTagBackoff are the first and the longest pause between two tries.
	firstTagBackoff, longestTagBackoff = 250 * time.Millisecond, 4 * time.Second
)

// untilFound retries a call about new machines: for a short time after a launch, parts of AWS answer that they do not exist.
func (c *Client) untilFound(o *ec2.Options) {
	o.Retryer = newRetryer(c.config.Unpaced, func(o *retry.StandardOptions) {
		o.MaxAttempts = TagTries
		if !c.config.Unpaced {
			o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
				return min(firstTagBackoff<<max(0, attempt-1), longestTagBackoff), nil
			})
		}
		unknown := retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			if e, _ := classified(err); e.Code == unknownInstance {
				return aws.TrueTernary
			}
			return aws.UnknownTernary
		})
		o.Retryables = append([]retry.IsErrorRetryable{unknown}, o.Retryables...)
	})
}
