package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster/queueing/history"
)

// Format is what a receiver reads.
type Format string

const (
	// CloudEvents is CloudEvents 1.0 in structured mode.
	CloudEvents Format = "cloudevents"
	// Slack is the form of Slack's incoming webhooks, which Mattermost and others read, too.
	Slack Format = "slack"
	// Alertmanager is the form of POST /api/v2/alerts.
	Alertmanager Format = "alertmanager"
)

// Formats are all.
var Formats = []Format{CloudEvents, Slack, Alertmanager}

// ContentType of the format.
func (f Format) ContentType() string {
	if f == CloudEvents {
		return "application/cloudevents+json; charset=utf-8"
	}
	return "application/json"
}

// TypePrefix is that of the type of a CloudEvent, before its Kind.
const TypePrefix = "dev.muster."

type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            any       `json:"data"`
}

// jobData and budgetData have the sentence beside the fields.
type jobData struct {
	Summary string `json:"summary"`
	*Job
}

type budgetData struct {
	Summary string `json:"summary"`
	*Budget
}

type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
}

// names of alerts.
var names = map[Kind]string{
	Started: "MusterJobStarted", Delayed: "MusterJobDelayed", Evicted: "MusterJobEvicted", Finished: "MusterJobFinished",
	BudgetReached: "MusterBudgetReached",
}

// Encode writes a Notification. Source is a URI of the cluster.
func (f Format) Encode(n *Notification, source string) ([]byte, error) {
	switch f {
	case Slack:
		// Slack reads these three as markup, by which a text could mention a channel.
		text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(n.Summary)
		return json.Marshal(map[string]string{"text": text})
	case Alertmanager:
		return json.Marshal([]alert{{
			Labels: n.labels(source), Annotations: map[string]string{"summary": n.Summary, "id": n.ID}, StartsAt: n.Time,
		}})
	case CloudEvents:
		e := cloudEvent{
			SpecVersion: "1.0", ID: n.ID, Source: source, Type: TypePrefix + string(n.Kind), Time: n.Time, DataContentType: "application/json",
		}
		if n.Job != nil {
			e.Subject, e.Data = n.Job.Namespace+"/"+n.Job.Job, jobData{n.Summary, n.Job}
		} else {
			e.Subject, e.Data = "capacitypolicy/"+n.Budget.CapacityPolicy+"/"+n.Budget.Budget, budgetData{n.Summary, n.Budget}
		}
		return json.Marshal(e)
	}
	return nil, fmt.Errorf("the format %q is unknown", f)
}

// labels route an alert. Alerts with the same labels are one for an Alertmanager.
func (n *Notification) labels(source string) map[string]string {
	out := map[string]string{"alertname": names[n.Kind], "source": source, "severity": "info"}
	if !n.isExpected() {
		out["severity"] = "warning"
	}
	if n.Job != nil {
		out["namespace"], out["queue"], out["job"] = n.Job.Namespace, n.Job.Queue, n.Job.Job
		if n.Job.Outcome != "" {
			out["outcome"] = string(n.Job.Outcome)
		}
		if n.Job.Reason != "" {
			out["reason"] = n.Job.Reason
		}
		return out
	}
	out["capacitypolicy"], out["budget"], out["percent"] = n.Budget.CapacityPolicy, n.Budget.Budget, fmt.Sprint(n.Budget.Percent)
	return out
}

// isExpected reports whether the change is the ordinary way of a job.
func (n *Notification) isExpected() bool {
	return n.Kind == Started || n.Kind == Finished && n.Job.Outcome != history.Failed
}
