package main

// offering puts the cloud, zone, market and instance type of groups to their values.
const offering = ` * on (group) group_left (provider, zone, capacity_type, instance_type)` +
	` max by (group, provider, zone, capacity_type, instance_type) (muster_group_info)`

// offered is what such series are called.
const offered = "{{instance_type}} {{zone}} {{capacity_type}} ({{group}})"

// teams are what each tenant pays an hour, with a name for those machines that nobody
// has.
const teams = `label_replace(max by (namespace, queue) (muster_spend_usd_per_hour), "namespace", "(nobody)", "namespace", "")`

// boards are all dashboards, by the question that each answers.
var boards = []board{queueBoard, obtainabilityBoard, costBoard, healthBoard}

var queueBoard = board{
	name: "queue", title: "Muster: queue", from: "6h",
	description: "Who waits, for what and how long.",
	rows: []row{
		{"Who waits", []panel{
			{title: "Workloads that wait", width: 8, unit: "short", kind: stacked,
				description: "By ClusterQueue. Inadmissible ones wait for a change, active ones are about to be judged.",
				queries:     []query{{`sum by (cluster_queue, status) (kueue_pending_workloads)`, "{{cluster_queue}} {{status}}"}}},
			{title: "Workloads that run", width: 8, unit: "short", kind: stacked,
				queries: []query{{`sum by (cluster_queue) (kueue_admitted_active_workloads)`, "{{cluster_queue}}"}}},
			{title: "Requests for capacity", width: 8, unit: "short", kind: stacked,
				description: "ProvisioningRequests by the last condition that became true. Accepted ones wait for capacity.",
				queries:     []query{{`sum by (condition) (muster_requests)`, "{{condition}}"}}},
			{title: "Quota in use", width: 24, unit: "percentunit", kind: lines,
				description: "What Workloads have reserved of the nominal quota; above 100 % it is borrowed.",
				queries: []query{{`sum by (cluster_queue, flavor, resource) (kueue_cluster_queue_resource_reservation)` +
					` / (sum by (cluster_queue, flavor, resource) (kueue_cluster_queue_nominal_quota) > 0)`, "{{cluster_queue}} {{flavor}} {{resource}}"}}},
		}},
		{"How long", []panel{
			{title: "Time to capacity", width: 12, unit: "s", kind: lines,
				description: "From the creation of a request until it was Provisioned, of the last hour.",
				queries: []query{
					{`histogram_quantile(0.5, sum by (le) (rate(muster_request_provisioned_seconds_bucket[1h])))`, "half of them"},
					{`histogram_quantile(0.9, sum by (le) (rate(muster_request_provisioned_seconds_bucket[1h])))`, "nine of ten"},
				}},
			{title: "Where the time goes", width: 12, unit: "s", kind: stacked,
				description: "Mean seconds of each stage, of the last hour: quota, wait for an attempt that succeeds, cloud until it has made the machines, boot, join.",
				queries: []query{{`sum by (stage) (rate(muster_time_to_capacity_seconds_sum[1h]))` +
					` / (sum by (stage) (rate(muster_time_to_capacity_seconds_count[1h])) > 0)`, "{{stage}}"}}},
			{title: "Time to boot, by machines", width: 12, unit: "s", kind: lines,
				description: "Nine of ten gangs of so many machines had all of them registered within this time.",
				queries: []query{{`histogram_quantile(0.9, sum by (le, machines) (rate(muster_time_to_capacity_seconds_bucket{stage="boot"}[1h])))`,
					"{{machines}} machines or more"}}},
			{title: "Wait for quota, by queue", width: 12, unit: "s", kind: lines,
				description: "Nine of ten Workloads got quota within this time.",
				queries: []query{{`histogram_quantile(0.9, sum by (le, cluster_queue) (rate(kueue_quota_reserved_wait_time_seconds_bucket[1h])))`,
					"{{cluster_queue}}"}}},
			{title: "Until they have started", width: 12, unit: "s", kind: lines,
				description: "How long it is expected to take, from now on, until half or all of the Workloads that wait have started. Nothing is drawn where that is not within 7 days.",
				queries: []query{{`clamp_min(max by (cluster_queue, workloads) (muster_forecast_start_timestamp_seconds < +Inf) - time(), 0)`,
					"{{workloads}} of {{cluster_queue}}"}}},
			{title: "How good forecasts are", width: 12, unit: "percentunit", kind: lines,
				description: "Of the latest starts: by how much of the wait the first forecast was off, and how many lay in its range, which is meant to be 80 %.",
				queries: []query{
					{`max(muster_forecast_error_ratio)`, "off by, median"},
					{`max(muster_forecast_within_range_ratio)`, "within the range"},
				}},
		}},
		{"What becomes of it", []panel{
			{title: "Bookings", width: 12, unit: "short", kind: bars,
				queries: []query{{`sum by (event) (increase(muster_bookings_total[$__rate_interval]))`, "{{event}}"}}},
			{title: "Workloads that had to stop", width: 12, unit: "short", kind: bars,
				queries: []query{{`sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total[$__rate_interval]))`, "{{cluster_queue}} {{reason}}"}}},
		}},
	},
}

var obtainabilityBoard = board{
	name: "obtainability", title: "Muster: obtainability", from: "6h",
	description: "What can be had now, and how sure that is.",
	rows: []row{
		{"Chances", []panel{
			{title: "Chance of one machine", width: 24, unit: "percentunit", kind: heat,
				description: "Green can be had, red cannot. A group that nobody tried lately looks fresh: see the age of what is known.",
				queries:     []query{{`max by (group) (muster_group_chance_ratio)` + offering, offered}}},
			{title: "Evidence", width: 12, unit: "short", kind: ranking,
				description: "Launches that the chance is estimated from. Each counts half after 30 minutes.",
				queries:     []query{{`sum by (group, outcome) (muster_group_evidence_launches)`, "{{group}} {{outcome}}"}}},
			{title: "Age of the evidence", width: 12, unit: "s", kind: ranking,
				queries: []query{{`time() - max by (group) (muster_group_evidence_timestamp_seconds)`, "{{group}}"}}},
		}},
		{"Attempts", []panel{
			{title: "Launches by outcome", width: 12, unit: "short", kind: bars,
				queries: []query{{`sum by (outcome) (increase(muster_launches_total[$__rate_interval]))`, "{{outcome}}"}}},
			{title: "Launches that failed, by group", width: 12, unit: "short", kind: bars,
				queries: []query{{`sum by (group, outcome) (increase(muster_launches_total{outcome!~"Succeeded|Undone"}[$__rate_interval]))`, "{{group}} {{outcome}}"}}},
			{title: "Success by size of gang", width: 12, unit: "percentunit", kind: ranking,
				description: "Share of the launches of whole gangs in the last hour that succeeded. It falls where gangs are larger than what a pool has.",
				queries:     []query{{`sort_desc(muster:attempt_success:ratio1h)`, "{{machines}} machines or more"}}},
			{title: "Machines lost", width: 12, unit: "short", kind: bars,
				description: "Machines that ended by themselves, spot machines that were reclaimed included.",
				queries:     []query{{`sum by (group, stage) (increase(muster_machines_lost_total[$__rate_interval]))`, "{{group}} while {{stage}}"}}},
		}},
		{"Prices", []panel{
			{title: "Price of a machine an hour", width: 16, unit: "currencyUSD", kind: lines,
				queries: []query{{`max by (group) (muster_group_price_usd_per_hour)` + offering, offered}}},
			{title: "Price of spot, of that on demand", width: 8, unit: "percentunit", kind: ranking,
				description: "Against the cheapest on-demand group of the same instance type. From 100 % on spot is a risk for nothing.",
				queries: []query{{`max by (instance_type, group) (max by (group) (muster_group_price_usd_per_hour)` +
					` * on (group) group_left (instance_type) max by (group, instance_type) (muster_group_info{capacity_type="Spot"}))` +
					` / on (instance_type) group_left min by (instance_type) (max by (group) (muster_group_price_usd_per_hour)` +
					` * on (group) group_left (instance_type) max by (group, instance_type) (muster_group_info{capacity_type="OnDemand"}))`, "{{group}}"}}},
		}},
	},
}

var costBoard = board{
	name: "cost", title: "Muster: cost", from: "24h",
	description: "What machines cost, who has them, and what was paid for nothing. At the prices of the NodeGroups.",
	rows: []row{
		{"Now", []panel{
			{title: "Spend an hour", width: 6, unit: "currencyUSD", kind: number,
				queries: []query{{`sum(muster:spend_usd_per_hour)`, ""}}},
			{title: "A month at this rate", width: 6, unit: "currencyUSD", kind: number,
				queries: []query{{`sum(muster:spend_usd_per_hour) * 730`, ""}}},
			{title: "Spent in the time shown", width: 6, unit: "currencyUSD", kind: number,
				queries: []query{{`sum(increase(muster_machine_cost_usd_total[$__range]))`, ""}}},
			{title: "For nothing, in the time shown", width: 6, unit: "currencyUSD", kind: number,
				description: "Machines of gangs that never came together, and bookings that no pod came for.",
				queries: []query{{`sum(increase(muster_machine_cost_usd_total{purpose="wasted"}[$__range]))` +
					` + sum(increase(muster_machine_unused_cost_usd_total[$__range]))`, ""}}},
		}},
		{"Spend an hour", []panel{
			{title: "By team", width: 12, unit: "currencyUSD", kind: stacked,
				description: "By namespace and LocalQueue. What nobody has is idle or being taken back.",
				queries:     []query{{teams, "{{namespace}} {{queue}}"}}},
			{title: "By cloud", width: 12, unit: "currencyUSD", kind: stacked,
				queries: []query{{`sum by (provider) (muster:spend_usd_per_hour)`, "{{provider}}"}}},
			{title: "By market", width: 12, unit: "currencyUSD", kind: stacked,
				queries: []query{{`sum by (capacity_type) (muster:spend_usd_per_hour)`, "{{capacity_type}}"}}},
			{title: "By instance type", width: 12, unit: "currencyUSD", kind: stacked,
				queries: []query{{`sum by (instance_type) (muster:spend_usd_per_hour)`, "{{instance_type}}"}}},
			{title: "Of each team, in the time shown", width: 12, unit: "currencyUSD", kind: ranking,
				queries: []query{{`sort_desc(sum by (namespace, queue) (label_replace(increase(muster_spend_usd_total[$__range]),` +
					` "namespace", "(nobody)", "namespace", "")))`, "{{namespace}} {{queue}}"}}},
			{title: "By what it is for", width: 12, unit: "currencyUSD", kind: stacked,
				description: "Of the last hour. The time in which machines joined is counted when it is over.",
				queries:     []query{{`sum by (purpose) (rate(muster_machine_cost_usd_total[1h])) * 3600`, "{{purpose}}"}}},
		}},
		{"Budgets", []panel{
			{title: "Spent of each budget", width: 12, unit: "percentunit", kind: ranking,
				description: "In its period so far. From 100 % on gangs of its namespaces wait; those that run go on.",
				queries: []query{{`sort_desc(max by (policy, budget) (muster_budget_spent_usd)` +
					` / (max by (policy, budget) (muster_budget_limit_usd) > 0))`, "{{policy}} {{budget}}"}}},
			{title: "Left for gangs to begin with", width: 12, unit: "currencyUSD", kind: lines,
				description: "Of each budget, less what was spent and what is set aside for machines in use. Below 0 gangs ran on for longer than was reserved for them.",
				queries: []query{{`max by (policy, budget) (muster_budget_limit_usd) - max by (policy, budget) (muster_budget_spent_usd)` +
					` - max by (policy, budget) (muster_budget_committed_usd)`, "{{policy}} {{budget}}"}}},
		}},
		{"Waste and machines", []panel{
			{title: "Waste an hour", width: 12, unit: "currencyUSD", kind: stacked,
				description: "Of the last hour: incomplete is machines of gangs that never came together, unused is bookings that no pod came for.",
				queries:     []query{{`sum by (group, reason) (muster:waste_usd_per_hour)`, "{{group}} {{reason}}"}}},
			{title: "Machines", width: 12, unit: "short", kind: stacked,
				queries: []query{{`sum by (state) (muster_machines)`, "{{state}}"}}},
		}},
	},
}

var healthBoard = board{
	name: "health", title: "Muster: health", from: "1h",
	description: "Whether Muster itself keeps up.",
	rows: []row{
		{"Muster", []panel{
			{title: "Writes a second", width: 12, unit: "ops", kind: stacked,
				description: "To the API server, by resource. Writes are what a control plane has least of.",
				queries:     []query{{`sum by (resource) (rate(muster_api_writes_total[$__rate_interval]))`, "{{resource}}"}}},
			{title: "Cycle of the queues", width: 12, unit: "s", kind: lines,
				queries: []query{
					{`histogram_quantile(0.5, sum by (le) (rate(kueue_admission_attempt_duration_seconds_bucket[5m])))`, "half of them"},
					{`histogram_quantile(0.99, sum by (le) (rate(kueue_admission_attempt_duration_seconds_bucket[5m])))`, "99 of 100"},
				}},
			{title: "Machines being taken back", width: 12, unit: "short", kind: lines,
				description: "Machines that never served and have not gone yet. It is 0 but for minutes.",
				queries:     []query{{`sum by (group) (muster_machines{state="wasted"})`, "{{group}}"}}},
			{title: "Bookings repaired", width: 12, unit: "short", kind: bars,
				description: "Bookings that were short of room and were booked anew: something takes room that was promised.",
				queries:     []query{{`sum(increase(muster_bookings_repaired_total[$__rate_interval]))`, "repaired"}}},
		}},
	},
}
