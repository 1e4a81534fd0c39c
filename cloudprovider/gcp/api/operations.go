package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
)

// waits is how often a call waits for its operation. The cloud answers when the operation is done, after two minutes at the latest.
const waits = 2

// run makes a call that begins an operation, and waits for it.
func (c *Client) run(ctx context.Context, project string, r *request) error {
	op := &computepb.Operation{}
	if err := c.call(ctx, r, op); err != nil {
		return err
	}
	_, err := c.Finish(ctx, project, op)
	return err
}

// Finish waits for an operation, and returns what it failed with. The error is cloudprovider.ErrUnderWay where it runs on.
func (c *Client) Finish(ctx context.Context, project string, op *computepb.Operation) (*computepb.Operation, error) {
	for range waits {
		if op.GetStatus() == computepb.Operation_DONE {
			break
		}
		action, place := "zoneOperations.wait", "zones/"+Base(op.GetZone())
		if op.GetZone() == "" {
			action, place = "regionOperations.wait", "regions/"+Base(op.GetRegion())
		}
		r, now := compute(action, wait, http.MethodPost, project, place, "operations", op.GetName(), "wait"), &computepb.Operation{}
		if err := c.call(ctx, r, now); err != nil {
			return op, fmt.Errorf("waiting for operation %s: %w", op.GetName(), err)
		}
		op = now
	}
	if op.GetStatus() != computepb.Operation_DONE {
		return op, fmt.Errorf("operation %s: %w", op.GetName(), cloudprovider.ErrUnderWay)
	}
	if refusal := failureOfOperation(op); refusal != nil {
		return op, refusal
	}
	return op, nil
}

// RequestID is the idempotency token of a call: a UUID that follows from what the call is for.
func RequestID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return uuid([16]byte(sum[:16]))
}

// freshID is the idempotency token of a call that may be made again on purpose: one that terminates must not be answered with what
// came of the last one.
func freshID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return uuid(b)
}

// uuid of version 4, for whose random bits a hash will do: not all of Google's services take the version for bits of one's own, which
// is younger than they.
func uuid(b [16]byte) string {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
