// Package monitoring tests what people see of Muster from outside: that the metrics
// add up to the bill of the clouds, and that whatever deploy/monitoring says of
// metrics, in its table, rules and dashboards, is so.
package monitoring
