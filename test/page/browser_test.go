package page

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/muster-dev/muster/test/pressure"
)

// patience is the timeout for what a page should show. Informers whose permissions were revoked list again with a backoff of up to a
// minute.
const patience = 2 * time.Minute

// tick is the poll interval.
const tick = 20 * time.Millisecond

// browser is a headless Chromium, spoken to by the DevTools protocol.
type browser struct {
	t    *testing.T
	conn *websocket.Conn
	// over is closed when the browser says no more.
	over chan struct{}

	mu      sync.Mutex
	last    int
	answers map[int]chan answer
	tabs    map[string]*tab
}

// answer is one to a command.
type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// chromium finds the browser, or skips the test.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no chromium on this machine: install it to look at the page (apt-get install chromium)")
	return ""
}

// newBrowser starts one that ends with the test.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	// No t.TempDir: the children of a browser may write for a moment after its end.
	home, err := os.MkdirTemp("", "browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	ctx, end := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, chromium(t), "--headless=new", "--remote-debugging-port=0", "--user-data-dir="+home,
		"--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "about:blank")
	command.Env = append(os.Environ(), "HOME="+home)
	if err := command.Start(); err != nil {
		end()
		t.Fatal(err)
	}
	b := &browser{t: t, over: make(chan struct{}), answers: map[int]chan answer{}, tabs: map[string]*tab{}}
	t.Cleanup(func() {
		if b.conn == nil {
			end()
		} else {
			_ = b.call("", "Browser.close", map[string]any{}, nil)
			_ = b.conn.Close()
		}
		defer time.AfterFunc(patience, end).Stop()
		_ = command.Wait() // however it ended
		end()
	})
	var address string
	eventually(t, "chromium to listen", func() error {
		text, err := os.ReadFile(filepath.Join(home, "DevToolsActivePort"))
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		port, path, ok := strings.Cut(string(text), "\n")
		if !ok || path == "" {
			return fmt.Errorf("it wrote %q", text)
		}
		address = "ws://127.0.0.1:" + port + path
		return nil
	})
	if b.conn, _, err = websocket.DefaultDialer.Dial(address, nil); err != nil {
		t.Fatal(err)
	}
	go b.listen()
	return b
}

// listen hands out answers and notes what goes wrong in tabs.
func (b *browser) listen() {
	defer close(b.over)
	for {
		var m struct {
			ID      int             `json:"id"`
			Session string          `json:"sessionId"`
			Method  string          `json:"method"`
			Params  json.RawMessage `json:"params"`
			answer
		}
		if b.conn.ReadJSON(&m) != nil {
			return
		}
		b.mu.Lock()
		if waits := b.answers[m.ID]; waits != nil {
			delete(b.answers, m.ID)
			waits <- m.answer
		}
		if tab := b.tabs[m.Session]; tab != nil {
			tab.note(m.Method, m.Params)
		}
		b.mu.Unlock()
	}
}

// call carries out a command; into may be nil.
func (b *browser) call(session, method string, params, into any) error {
	waits := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.answers[id] = waits
	err := b.conn.WriteJSON(map[string]any{"id": id, "sessionId": session, "method": method, "params": params})
	b.mu.Unlock()
	if err != nil {
		return err
	}
	// The browser is also closed by a call, when the test's context is over.
	ctx, cancel := pressure.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case a := <-waits:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(a.Result, into)
	case <-b.over:
		return fmt.Errorf("%s: the browser is gone", method)
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer: %w", method, context.Cause(ctx))
	}
}

// tab is a page in the browser.
type tab struct {
	*browser
	target, session string
	// troubles are the errors of its console, and requests are its requests.
	troubles []string
	requests []string
}

// screen is the screen of a device.
type screen struct {
	width, height int
	phone, dark   bool
}

var (
	desktop = screen{width: 1366, height: 900}
	night   = screen{width: 1366, height: 900, dark: true}
	phone   = screen{width: 390, height: 844, phone: true}
)

// open opens an address on a screen.
func (b *browser) open(address string, s screen) *tab {
	b.t.Helper()
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.must(b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target))
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.must(b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached))
	t := &tab{browser: b, target: target.TargetID, session: attached.SessionID}
	b.mu.Lock()
	b.tabs[t.session] = t
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		t.must(t.call(t.session, domain+".enable", map[string]any{}, nil))
	}
	t.show(s)
	t.must(t.call(t.session, "Page.navigate", map[string]any{"url": address}, nil))
	return t
}

// close closes the tab. Each tab has a stream, and browsers allow six.
func (t *tab) close() {
	t.t.Helper()
	t.must(t.call("", "Target.closeTarget", map[string]any{"targetId": t.target}, nil))
}

// show puts the tab on another screen.
func (t *tab) show(s screen) {
	t.t.Helper()
	scale := 1
	if s.phone {
		scale = 2
	}
	theme := "light"
	if s.dark {
		theme = "dark"
	}
	t.must(t.call(t.session, "Emulation.setDeviceMetricsOverride",
		map[string]any{"width": s.width, "height": s.height, "deviceScaleFactor": scale, "mobile": s.phone}, nil))
	t.must(t.call(t.session, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme",
		"value": theme}}}, nil))
}

// note keeps what a tab should never do.
func (t *tab) note(method string, params json.RawMessage) {
	switch method {
	case "Runtime.exceptionThrown":
		t.troubles = append(t.troubles, string(params))
	case "Runtime.consoleAPICalled":
		var p struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(params, &p) == nil && (p.Type == "error" || p.Type == "warning" || p.Type == "assert") {
			t.troubles = append(t.troubles, string(params))
		}
	case "Log.entryAdded":
		var p struct {
			Entry struct {
				Level, Text, URL string
			} `json:"entry"`
		}
		if json.Unmarshal(params, &p) == nil && p.Entry.Level != "verbose" && p.Entry.Level != "info" {
			t.troubles = append(t.troubles, p.Entry.Text+" "+p.Entry.URL)
		}
	case "Network.requestWillBeSent":
		var p struct {
			Request struct{ URL string } `json:"request"`
		}
		if json.Unmarshal(params, &p) == nil {
			t.requests = append(t.requests, p.Request.URL)
		}
	}
}

// eval runs JavaScript in the page; into may be nil.
func (t *tab) eval(script string, into any) error {
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if err := t.call(t.session, "Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true,
		"awaitPromise": true}, &out); err != nil {
		return err
	}
	if e := out.ExceptionDetails; e != nil {
		return fmt.Errorf("%s %s", e.Text, e.Exception.Description)
	}
	if into == nil || len(out.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(out.Result.Value, into)
}

// holds waits until a condition is true in the page.
func (t *tab) holds(condition string) {
	t.t.Helper()
	eventually(t.t, condition, func() error {
		var ok bool
		if err := t.eval("Boolean("+condition+")", &ok); err != nil {
			return err
		}
		if !ok {
			return errors.New("it is not so")
		}
		return nil
	})
}

// reads waits until the page, or a part of it, has a text.
func (t *tab) reads(selector, text string) {
	t.t.Helper()
	var last string
	eventually(t.t, fmt.Sprintf("%s to say %q", selector, text), func() error {
		if err := t.eval(fmt.Sprintf("[...document.querySelectorAll(%q)].map((n) => n.innerText).join('\\n')", selector), &last); err != nil {
			return err
		}
		if !strings.Contains(last, text) {
			return fmt.Errorf("it says:\n%s", last)
		}
		return nil
	})
}

// click clicks on the first thing that a selector finds, as soon as it is there.
func (t *tab) click(selector string) {
	t.t.Helper()
	t.holds(fmt.Sprintf("document.querySelector(%q)", selector))
	t.must(t.eval(fmt.Sprintf("document.querySelector(%q).click()", selector), nil))
}

// keys are the codes of the keys that tests press.
var keys = map[string]int{"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowDown": 40}

// press presses a key as people do.
func (t *tab) press(key string) {
	t.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		t.must(t.call(t.session, "Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key,
			"windowsVirtualKeyCode": keys[key]}, nil))
	}
}

// picture takes one of what is in sight, or of the whole page.
func (t *tab) picture(name string, whole bool) {
	t.t.Helper()
	var out struct {
		Data string `json:"data"`
	}
	t.must(t.call(t.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole}, &out))
	png, err := base64.StdEncoding.DecodeString(out.Data)
	if err != nil {
		t.t.Fatal(err)
	}
	path := filepath.Join(t.t.ArtifactDir(), name+".png")
	if err := os.WriteFile(path, png, 0o600); err != nil {
		t.t.Fatal(err)
	}
	t.t.Logf("picture %s", path)
}

// quiet fails for what the console shows, and for requests to any other host than the page's.
func (t *tab) quiet(home string) {
	t.t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, trouble := range t.troubles {
		t.t.Errorf("the console shows: %s", trouble)
	}
	for _, url := range t.requests {
		if !strings.HasPrefix(url, home) && !strings.HasPrefix(url, "data:") && url != "about:blank" {
			t.t.Errorf("the page asks somebody else: %s", url)
		}
	}
}

func (b *browser) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// eventually waits until f is content, and fails with its last error.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	ctx, cancel := pressure.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v: %v", what, context.Cause(ctx), err)
		}
	}
}
