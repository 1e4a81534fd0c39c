// Package cost says what machines are paid for, what they have cost, and which tenants
// pay for them.
package cost
