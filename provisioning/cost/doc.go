// Package cost has the purposes of machines, their costs, and the tenants that pay for them.
package cost
