package page

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// prometheus answers as one does that has seen the groups of a world for long, and returns
// its address.
func prometheus(t *testing.T, w *world) string {
	t.Helper()
	groups := of[*v1alpha1.NodeGroup](w)
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		number := func(name string) int64 {
			n, err := strconv.ParseInt(q.Get(name), 10, 64)
			if err != nil {
				http.Error(out, err.Error(), http.StatusBadRequest)
			}
			return n
		}
		from, to, step := number("start"), number("end"), max(1, number("step"))
		type series struct {
			Metric map[string]string `json:"metric"`
			Values [][2]any          `json:"values"`
		}
		result := []series{}
		add := func(labels map[string]string, value func(at int64) float64) {
			one := series{Metric: labels}
			for at := from; at <= to; at += step {
				one.Values = append(one.Values, [2]any{at, strconv.FormatFloat(value(at), 'f', -1, 64)})
			}
			result = append(result, one)
		}
		if strings.Contains(q.Get("query"), "spend") {
			add(map[string]string{}, func(at int64) float64 { return 5200 + 1400*math.Sin(float64(at)/9000) + 300*math.Sin(float64(at)/900) })
		}
		for i, g := range groups {
			labels := map[string]string{"group": g.Name}
			draw := rand.New(rand.NewPCG(1, uint64(i)))
			low, phase := draw.Float64(), 6*draw.Float64()
			chance := func(at int64) float64 {
				return math.Round(98 - 96*math.Pow(low, 1.2)*math.Max(0, math.Sin(float64(at)/2400+phase)))
			}
			switch query := q.Get("query"); {
			case strings.Contains(query, "chance"):
				add(labels, chance)
			case strings.Contains(query, "evidence"):
				add(labels, func(at int64) float64 { return 6 * math.Abs(math.Sin(float64(at)/3700+2*phase)) })
			case strings.Contains(query, "price"):
				price := g.Spec.PricePerHour.AsApproximateFloat64()
				add(labels, func(at int64) float64 {
					if g.Spec.CapacityType != v1alpha1.Spot {
						return price
					}
					return price * (1 + 0.25*math.Round(3*math.Sin(float64(at/3600)+phase))/3)
				})
			}
		}
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}})
	}))
	t.Cleanup(server.Close)
	return server.URL
}
