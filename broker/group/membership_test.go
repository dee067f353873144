package group

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
)

func TestFirstRebalanceWaitsForMembers(t *testing.T) {
	run(t, nil, func(w *world) {
		a, b := w.client(), w.client()
		start := time.Now()
		got := all(a.join, func() string { time.Sleep(2 * time.Second); return b.join() })
		w.want("joins", strings.Join(got, " "), "NONE NONE")
		// b came within the first 3 s, so another 3 s were waited.
		if d := time.Since(start); d != 6*time.Second {
			t.Errorf("joined after %v", d)
		}
		if a.generation != 1 || b.generation != 1 || !a.leads() || len(a.joined.Members) != 2 || len(b.joined.Members) != 0 || b.joined.LeaderID != a.id {
			t.Errorf("a %+v\nb %+v", a.joined, b.joined)
		}
		if !strings.HasPrefix(a.id, "client-") || a.id == b.id {
			t.Errorf("ids %q %q", a.id, b.id)
		}
		w.want("state", w.state(), "CompletingRebalance 2")
		w.want("syncs", strings.Join(all(a.sync, b.sync), " "), "NONE NONE")
		w.want("state", w.state(), "Stable 2")
		w.want("heartbeat", a.heartbeat(), "NONE")
	})
}

func TestInitialDelayEndsAtTheRebalanceTimeout(t *testing.T) {
	run(t, nil, func(w *world) {
		var joins []func() string
		var times [5]time.Duration
		start := time.Now()
		for i := range 5 {
			c := w.client()
			c.rebalance = 7 * time.Second
			joins = append(joins, func() string {
				time.Sleep(time.Duration(i) * 2 * time.Second)
				r := c.join()
				times[i] = time.Since(start)
				return r
			})
		}
		all(joins...)
		if times[0] != 7*time.Second || times[3] != 7*time.Second {
			t.Errorf("the group formed after %v", times)
		}
	})
}

// JoinGroup below version 4 must not demand a member id first (PROTOCOL.md section 2).
func TestOldJoinNeedsNoMemberID(t *testing.T) {
	for version := range int16(10) {
		run(t, nil, func(w *world) {
			req := kmsg.NewPtrJoinGroupRequest()
			req.Version, req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = version, "g", "consumer", 10000, 10000
			req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
			resp := w.c.JoinGroup(context.Background(), req, "c", "/h")
			want := "NONE"
			if version >= 4 {
				want = "MEMBER_ID_REQUIRED"
			}
			w.want(fmt.Sprint("version ", version), mirrormsg.CodeName(resp.ErrorCode), want)
			if resp.MemberID == "" || resp.Version != version {
				t.Errorf("version %d: %+v", version, resp)
			}
		})
	}
}

func TestRebalanceOnJoinAndLeave(t *testing.T) {
	run(t, nil, func(w *world) {
		a, b := w.client(), w.client()
		w.form(a)
		joined := make(chan string)
		go func() { joined <- b.join() }()
		synctest.Wait()
		w.want("heartbeat during the rebalance", a.heartbeat(), "REBALANCE_IN_PROGRESS")
		w.want("commit during the rebalance", a.commit(1), "NONE")
		w.want("sync during the rebalance", a.sync(), "REBALANCE_IN_PROGRESS")
		w.want("a joins again", a.join(), "NONE")
		w.want("b joins", <-joined, "NONE")
		if a.generation != 2 || b.generation != 2 {
			t.Errorf("generations %d %d", a.generation, b.generation)
		}
		// Until the leader has sent the assignment commits are refused.
		w.want("commit before the sync", b.commit(1), "REBALANCE_IN_PROGRESS")
		w.want("syncs", strings.Join(all(b.sync, a.sync), " "), "NONE NONE")

		old := *b
		w.want("b leaves", b.leave(), "NONE")
		w.want("b again", old.heartbeat(), "UNKNOWN_MEMBER_ID")
		w.want("b leaves again", b.leave(), "UNKNOWN_MEMBER_ID")
		w.want("heartbeat", a.heartbeat(), "REBALANCE_IN_PROGRESS")
		w.form(a)
		if a.generation != 3 {
			t.Errorf("generation %d", a.generation)
		}
		a.generation = 2
		w.want("old generation", a.heartbeat(), "ILLEGAL_GENERATION")
		w.want("old generation", a.commit(9), "ILLEGAL_GENERATION")
		w.want("old generation", a.sync(), "ILLEGAL_GENERATION")
		a.generation = 3
		w.want("a leaves", a.leave(), "NONE")
		w.want("state", w.state(), "Empty 0")
		w.want("offsets stay", w.fetch(), "1/3/")
	})
}

func TestSessionTimeout(t *testing.T) {
	run(t, nil, func(w *world) {
		a, b := w.client(), w.client()
		w.form(a, b)
		for range 3 {
			time.Sleep(4 * time.Second)
			got := a.heartbeat()
			if got != "NONE" && got != "REBALANCE_IN_PROGRESS" {
				t.Fatal(got)
			}
		}
		// b was silent for 12 s; its session of 10 s is over.
		w.want("b", b.heartbeat(), "UNKNOWN_MEMBER_ID")
		w.want("a", a.heartbeat(), "REBALANCE_IN_PROGRESS")
		w.form(a)
		// A commit counts as a sign of life.
		time.Sleep(8 * time.Second)
		w.want("commit", a.commit(1), "NONE")
		time.Sleep(8 * time.Second)
		w.want("heartbeat", a.heartbeat(), "NONE")
		time.Sleep(11 * time.Second)
		w.want("state", w.state(), "Empty 0")
	})
}

// A member that does not come back within the rebalance timeout is left out.
func TestRebalanceTimeout(t *testing.T) {
	run(t, nil, func(w *world) {
		a, b, c := w.client(), w.client(), w.client()
		b.session, b.rebalance, a.rebalance = 5*time.Minute, 30*time.Second, 30*time.Second
		c.rebalance = 30 * time.Second
		w.form(a, b)
		start := time.Now()
		got := all(a.join, c.join)
		w.want("joins", strings.Join(got, " "), "NONE NONE")
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("rebalanced after %v", d)
		}
		w.want("b", b.heartbeat(), "UNKNOWN_MEMBER_ID")
	})
}

// A member that joined a generation and never asks for its assignment is removed.
func TestSyncTimeout(t *testing.T) {
	run(t, nil, func(w *world) {
		a, b := w.client(), w.client()
		a.rebalance, b.rebalance = 20*time.Second, 20*time.Second
		a.session, b.session = time.Minute, time.Minute
		w.want("joins", strings.Join(all(a.join, b.join), " "), "NONE NONE")
		first, second := a, b
		if b.leads() {
			first, second = b, a
		}
		w.want("the leader syncs", first.sync(), "NONE")
		time.Sleep(21 * time.Second)
		w.want("the other", second.heartbeat(), "UNKNOWN_MEMBER_ID")
		w.want("the leader", first.heartbeat(), "REBALANCE_IN_PROGRESS")
	})
}

func TestPendingMemberExpires(t *testing.T) {
	run(t, nil, func(w *world) {
		a := w.client()
		w.form(a)
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 9, "g", "consumer", 6000, 10000
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
		ghost := w.c.JoinGroup(context.Background(), req, "ghost", "/h")
		// The group waits for the ghost while it rebalances, until the id expires.
		start := time.Now()
		w.want("a joins again", a.join(), "NONE")
		if d := time.Since(start); d != 6*time.Second {
			t.Errorf("waited %v for a member that never came", d)
		}
		req.MemberID = ghost.MemberID
		w.want("the ghost comes late", mirrormsg.CodeName(w.c.JoinGroup(context.Background(), req, "ghost", "/h").ErrorCode), "UNKNOWN_MEMBER_ID")
	})
}

func TestLostAnswers(t *testing.T) {
	run(t, nil, func(w *world) {
		a, b := w.client(), w.client()
		w.form(a, b)
		leader, follower := a, b
		if b.leads() {
			leader, follower = b, a
		}
		// A follower that asks again, unchanged, gets the current generation without a rebalance.
		w.want("join again", follower.join(), "NONE")
		w.want("sync again", follower.sync(), "NONE")
		if follower.generation != 1 {
			t.Errorf("generation %d", follower.generation)
		}
		// The leader's join and a changed subscription rebalance.
		follower.topics = []string{"t", "u"}
		w.want("joins", strings.Join(all(follower.join, leader.join), " "), "NONE NONE")
		if leader.generation != 2 {
			t.Errorf("generation %d", leader.generation)
		}
		w.want("syncs", strings.Join(all(follower.sync, leader.sync), " "), "NONE NONE")
		w.want("joins", strings.Join(all(leader.join, follower.join), " "), "NONE NONE")
		if leader.generation != 3 {
			t.Errorf("generation %d", leader.generation)
		}
	})
}

func TestStaticMembers(t *testing.T) {
	run(t, nil, func(w *world) {
		a, b := w.client(), w.client()
		a.instance, b.instance = kmsg.StringPtr("ia"), kmsg.StringPtr("ib")
		w.form(a, b)
		if !strings.HasPrefix(a.id, "ia-") {
			t.Errorf("id %q", a.id)
		}
		leader, follower := a, b
		if b.leads() {
			leader, follower = b, a
		}
		// A restart takes the place without a rebalance and fences the old process.
		old, assignment := *follower, follower.assignment
		follower.id = ""
		w.want("join after a restart", follower.join(), "NONE")
		if follower.generation != 1 || follower.id == old.id || follower.joined.SkipAssignment || len(follower.joined.Members) != 0 {
			t.Errorf("%+v", follower.joined)
		}
		w.want("sync", follower.sync(), "NONE")
		w.want("assignment", follower.assignment, assignment)
		w.want("old process", old.heartbeat(), "FENCED_INSTANCE_ID")
		w.want("old process", old.commit(1), "FENCED_INSTANCE_ID")
		w.want("old process", old.join(), "FENCED_INSTANCE_ID")

		// The leader's restart: version 9 is told to skip the assignment, older
		// versions must not believe that they lead.
		leader.id = ""
		w.want("leader restarts", leader.join(), "NONE")
		if !leader.joined.SkipAssignment || !leader.leads() || len(leader.joined.Members) != 2 {
			t.Errorf("version 9: %+v", leader.joined)
		}
		before := leader.id
		leader.id, leader.version = "", 5
		w.want("leader restarts", leader.join(), "NONE")
		if leader.joined.LeaderID != before || len(leader.joined.Members) != 0 || leader.joined.SkipAssignment {
			t.Errorf("version 5: %+v", leader.joined)
		}

		// A static member that is away does not cause a rebalance until its session ends.
		w.want("heartbeat", follower.heartbeat(), "NONE")
		time.Sleep(9 * time.Second)
		w.want("heartbeat", follower.heartbeat(), "NONE")
		time.Sleep(2 * time.Second)
		w.want("heartbeat", follower.heartbeat(), "REBALANCE_IN_PROGRESS")

		// An administrator removes by instance id.
		follower.id = ""
		w.want("leave", follower.leave(), "NONE")
		w.want("leave again", follower.leave(), "UNKNOWN_MEMBER_ID")
	})
}

func TestUnknownInstance(t *testing.T) {
	run(t, nil, func(w *world) {
		a := w.client()
		w.form(a)
		b := *a
		b.instance = kmsg.StringPtr("nobody")
		w.want("heartbeat", b.heartbeat(), "UNKNOWN_MEMBER_ID")
		w.want("join", b.join(), "UNKNOWN_MEMBER_ID")
	})
}

func TestJoinRefusals(t *testing.T) {
	run(t, func(c *Config) { c.MaxSize = 2 }, func(w *world) {
		a := w.client()
		a.id = "made-up"
		w.want("unknown group and member", a.join(), "UNKNOWN_MEMBER_ID")
		w.want("no group is left behind", w.state(), "GROUP_ID_NOT_FOUND")
		a.id, a.session = "", time.Second
		w.want("short session", a.join(), "INVALID_SESSION_TIMEOUT")
		a.session = time.Hour
		w.want("long session", a.join(), "INVALID_SESSION_TIMEOUT")
		a.session = 10 * time.Second
		a.protocols = nil
		w.want("no protocols", a.join(), "INCONSISTENT_GROUP_PROTOCOL")
		a.protocols = []string{"range", "sticky"}
		b := w.client()
		b.protocols = []string{"sticky", "roundrobin"}
		w.form(a, b)
		if *a.joined.Protocol != "sticky" {
			t.Errorf("protocol %q", *a.joined.Protocol)
		}
		c := w.client()
		c.protocols = []string{"roundrobin"}
		w.want("nothing in common", c.join(), "INCONSISTENT_GROUP_PROTOCOL")
		c.protocols = []string{"sticky"}
		w.want("full", c.join(), "GROUP_MAX_SIZE_REACHED")
		w.want("state", w.state(), "Stable 2")
		a.joined.Protocol = kmsg.StringPtr("other")
		w.want("sync with another protocol", a.sync(), "INCONSISTENT_GROUP_PROTOCOL")
		if resp := w.c.JoinGroup(context.Background(), &kmsg.JoinGroupRequest{SessionTimeoutMillis: 10000}, "", ""); mirrormsg.CodeName(resp.ErrorCode) != "INVALID_GROUP_ID" {
			t.Errorf("empty group id: %d", resp.ErrorCode)
		}
	})
}

func TestSelectProtocol(t *testing.T) {
	g := &group{members: map[string]*member{}}
	add := func(id string, protocols ...string) {
		m := &member{id: id}
		for _, p := range protocols {
			m.protocols = append(m.protocols, kmsg.JoinGroupRequestProtocol{Name: p})
		}
		g.members[id] = m
	}
	add("1", "a", "b", "c")
	add("2", "b", "a")
	add("3", "c", "b", "a")
	// c is not supported by all: votes a, b, b.
	if got := g.selectProtocol(); got != "b" {
		t.Errorf("selected %q", got)
	}
}

// A new coordinator knows the members and their assignments, and expects heartbeats.
func TestFailOver(t *testing.T) {
	run(t, nil, func(w *world) {
		a, b := w.client(), w.client()
		b.instance = kmsg.StringPtr("ib")
		w.form(a, b)
		w.want("commit", a.commit(42), "NONE")
		w.failOver()
		w.want("state", w.state(), "Stable 2")
		w.want("offset", w.fetch(), "42/3/")
		w.want("heartbeat", a.heartbeat(), "NONE")
		was := b.assignment
		w.want("sync", b.sync(), "NONE")
		w.want("assignment", b.assignment, was)
		time.Sleep(11 * time.Second)
		w.want("state", w.state(), "Empty 0")
		w.failOver()
		w.want("state", w.state(), "Empty 0")
		w.form(a.w.client())
	})
}

// A parked join is answered when the coordinator moves away.
func TestResignAnswersParkedJoins(t *testing.T) {
	run(t, nil, func(w *world) {
		got := make(chan string, 1)
		go func() { got <- w.client().join() }()
		synctest.Wait()
		w.c.Resign(0)
		w.want("join", <-got, "NOT_COORDINATOR")
		w.want("state", w.state(), "NOT_COORDINATOR")
		w.want("fetch", w.fetch(), "NOT_COORDINATOR")
	})
}
