package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	// recallEvery is how often Prometheus is queried for the history of each window, and
	// recallTimeout how long that may take.
	recallEvery   = time.Minute
	recallTimeout = 10 * time.Second
)

// The queries. Several processes of Muster may export the same series.
const (
	chanceQuery   = `100 * max by (group) (muster_group_chance_ratio)`
	evidenceQuery = `sum by (group) (max by (group, machines, outcome) (muster_group_evidence_launches))` +
		` * on (group) 0.5 ^ ((time() - max by (group) (muster_group_evidence_timestamp_seconds)) / 1800)`
	priceQuery = `max by (group) (muster_group_price_usd_per_hour)`
	spendQuery = `sum(max by (namespace, queue) (muster_spend_usd_per_hour))`
)

// prometheus is a source of history from before the page started. It is safe for concurrent
// use.
type prometheus struct {
	url    string
	client http.Client

	mu sync.Mutex
	// samples by window, the oldest first; err is the error of the last query.
	samples map[time.Duration][]sample
	err     error
	// rounds counts the rounds of queries.
	rounds int
}

// recall queries the history of all windows periodically, until ctx is done.
func (p *prometheus) recall(ctx context.Context, s *Server) {
	ticker := s.config.Clock.NewTicker(recallEvery)
	defer ticker.Stop()
	for {
		for _, window := range windows {
			samples, err := p.sample(ctx, s.config.Clock.Now(), window)
			p.mu.Lock()
			if p.err = err; err == nil {
				p.samples[window] = samples
			}
			p.mu.Unlock()
		}
		p.mu.Lock()
		p.rounds++
		p.mu.Unlock()
		s.notify()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// known returns the history of a window.
func (p *prometheus) known(window time.Duration) ([]sample, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.samples[window], p.err
}

// times returns the number of rounds of queries.
func (p *prometheus) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rounds
}

// sample queries samples of a window that ends now, one for each column.
func (p *prometheus) sample(ctx context.Context, now time.Time, window time.Duration) ([]sample, error) {
	step := window / columns
	first := now.Add(-window).Truncate(step)
	out := make([]sample, columns+1)
	for i := range out {
		out[i] = sample{at: first.Add(time.Duration(i) * step), groups: map[string]groupSample{}}
	}
	for _, q := range []struct {
		query string
		put   func(s *sample, group string, value float64)
	}{
		{chanceQuery, func(s *sample, group string, v float64) { s.groups[group] = groupSample{chance: int8(v)} }},
		{evidenceQuery, func(s *sample, group string, v float64) {
			if g, ok := s.groups[group]; ok {
				g.evidence = float32(v)
				s.groups[group] = g
			}
		}},
		{priceQuery, func(s *sample, group string, v float64) {
			if g, ok := s.groups[group]; ok {
				g.price = v
				s.groups[group] = g
			}
		}},
		{spendQuery, func(s *sample, _ string, v float64) { s.spend, s.seen = v, true }},
	} {
		series, err := p.query(ctx, q.query, first, out[columns].at, step)
		if err != nil {
			return nil, err
		}
		for _, one := range series {
			for _, v := range one.Values {
				if i := int(v.at.Sub(first) / step); i >= 0 && i < len(out) {
					q.put(&out[i], one.Metric.Group, v.value)
				}
			}
		}
	}
	return out, nil
}

// promSeries is a series in an answer of Prometheus.
type promSeries struct {
	Metric struct {
		Group string `json:"group"`
	} `json:"metric"`
	Values []promValue `json:"values"`
}

// promValue is written as [seconds, "value"].
type promValue struct {
	at    time.Time
	value float64
}

// UnmarshalJSON reads one.
func (v *promValue) UnmarshalJSON(text []byte) error {
	var seconds float64
	var value string
	if err := json.Unmarshal(text, &[]any{&seconds, &value}); err != nil {
		return err
	}
	var err error
	v.at = time.UnixMilli(int64(seconds * 1000))
	v.value, err = strconv.ParseFloat(value, 64)
	return err
}

// query requests the values of a range.
func (p *prometheus) query(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]promSeries, error) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	parameters := url.Values{
		"query": {query}, "start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(to.Unix(), 10)},
		"step": {strconv.FormatInt(int64(step.Seconds()), 10)},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query_range?"+parameters.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("--prometheus: %w", err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus (--prometheus): %w", err)
	}
	defer response.Body.Close()
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []promSeries `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading the answer of Prometheus (%s; check --prometheus): %w", response.Status, err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("Prometheus at %s returned an error: %s", p.url, answer.Error) //nolint:staticcheck // it is a name
	}
	return answer.Data.Result, nil
}
