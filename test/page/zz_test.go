package page
import ("testing";"net/http";"io";"time";"os")
func TestZZ(t *testing.T) {
	home := serve(t, busy(400, 24))
	for i, u := range []string{"/api/queue", "/api/queue/rows?count=3","/api/obtainability","/api/cost", "/api/queue", "/api/queue/rows?count=3&order=start"} {
		if i == 4 { time.Sleep(8*time.Second) }
		at := time.Now()
		r, err := http.Get(home+u); if err != nil { t.Fatal(err) }
		b, _ := io.ReadAll(r.Body)
		os.WriteFile("/tmp/w/page/bin/api-"+string('a'+rune(i))+".json", b, 0o600)
		t.Log(u, r.Status, len(b), time.Since(at))
	}
}
