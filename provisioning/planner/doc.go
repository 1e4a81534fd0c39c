// Package planner decides for a gang whether it fits on free capacity, what to launch for it,
// whether to wait or that it never fits, with a reason per group. A plan is a function of a
// Snapshot: nodes in classes of equals, groups, budgets, limits, and the machines that are
// coming.
package planner
