package gcp

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// operation is a change in progress. It takes effect at once, but the caller sees the result only when it is done.
type operation struct {
	name, kind string
	// scope is zones/<zone> or regions/<region>.
	scope string
	began time.Time
	err   *opError
	// target and created are the VMs of a bulk insert.
	target, created int
	// print identifies the call that created it.
	print string
}

type operationJSON struct {
	Kind          string    `json:"kind"`
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Zone          string    `json:"zone,omitempty"`
	Region        string    `json:"region,omitempty"`
	OperationType string    `json:"operationType"`
	Status        string    `json:"status"`
	Progress      int       `json:"progress"`
	InsertTime    string    `json:"insertTime"`
	StartTime     string    `json:"startTime"`
	EndTime       string    `json:"endTime,omitempty"`
	Error         *opErrors `json:"error,omitempty"`
	HTTPStatus    int       `json:"httpErrorStatusCode,omitempty"`
	HTTPMessage   string    `json:"httpErrorMessage,omitempty"`
	SelfLink      string    `json:"selfLink"`

	BulkInsert *bulkInsertStatus `json:"instancesBulkInsertOperationMetadata,omitempty"`
}

type bulkInsertStatus struct {
	PerLocationStatus map[string]bulkInsertLocation `json:"perLocationStatus"`
}

type bulkInsertLocation struct {
	Status                string `json:"status"`
	TargetVMCount         int    `json:"targetVmCount"`
	CreatedVMCount        int    `json:"createdVmCount"`
	FailedToCreateVMCount int    `json:"failedToCreateVmCount"`
	DeletedVMCount        int    `json:"deletedVmCount"`
}

// begin makes an operation.
func (f *Front) begin(kind, scope string) *operation {
	op := &operation{
		name: fmt.Sprintf("operation-%d", len(f.ops)+1), kind: kind, scope: scope, began: f.world.Now(),
	}
	f.ops[op.name] = op
	return op
}

// endOf an operation is when it is done.
func (f *Front) endOf(op *operation) time.Time { return op.began.Add(f.config.OperationTime.Duration) }

// operation is how callers see it now.
func (f *Front) operation(op *operation) *operationJSON {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	out := &operationJSON{
		Kind: "compute#operation", ID: strconv.Itoa(len(f.ops)), Name: op.name, OperationType: op.kind, Status: "RUNNING",
		InsertTime: stamp(op.began), StartTime: stamp(op.began), SelfLink: f.link(op.scope + "/operations/" + op.name),
	}
	if zone, ok := cutScope(op.scope, "zones/"); ok {
		out.Zone = f.link("zones/" + zone)
	} else {
		out.Region = f.link(op.scope)
	}
	end := f.endOf(op)
	done := !f.world.Now().Before(end)
	if op.target > 0 {
		status := bulkInsertLocation{Status: "CREATING", TargetVMCount: op.target, CreatedVMCount: op.created,
			FailedToCreateVMCount: op.target - op.created}
		switch {
		case done && op.err != nil:
			status.Status, status.DeletedVMCount = "DONE", op.created
		case done:
			status.Status = "DONE"
		case op.err != nil:
			status.Status = "ROLLING_BACK"
		}
		out.BulkInsert = &bulkInsertStatus{PerLocationStatus: map[string]bulkInsertLocation{op.scope: status}}
	}
	if !done {
		return out
	}
	out.Status, out.Progress, out.EndTime = "DONE", 100, stamp(end)
	if op.err != nil {
		out.Error, out.HTTPStatus, out.HTTPMessage = wrap(op.err), op.err.status(), http.StatusText(op.err.status())
		if op.target > 0 {
			// Bulk inserts add what follows from the error to the error itself.
			out.Error.Errors = append([]opError{{"VM_MIN_COUNT_NOT_REACHED",
				fmt.Sprintf("Requested minimum count of %d VMs could not be created.", op.target)}}, out.Error.Errors...)
		}
	}
	return out
}

// link is the full URL of a resource of the project.
func (f *Front) link(path string) string {
	return "https://www.googleapis.com/compute/v1/projects/" + f.config.Project + "/" + path
}

// getOperation answers with the operation as it is now. The real cloud's wait keeps
// the caller for up to two minutes, but promises no more than this.
func (f *Front) getOperation(c *call) (any, *cloudsim.Error) {
	op := f.ops[c.PathValue("operation")]
	if op == nil || op.scope != scopeOf(c) {
		return nil, notFound(scopeOf(c) + "/operations/" + c.PathValue("operation"))
	}
	return f.operation(op), nil
}

func scopeOf(c *call) string {
	if zone := c.PathValue("zone"); zone != "" {
		return "zones/" + zone
	}
	return "regions/" + c.PathValue("region")
}

func cutScope(scope, prefix string) (string, bool) {
	if len(scope) > len(prefix) && scope[:len(prefix)] == prefix {
		return scope[len(prefix):], true
	}
	return "", false
}
