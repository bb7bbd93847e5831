use locker::leader;

struct Once;

#[leader(name = "a")]
async fn leads(once: Once) -> locker::Result<()> {
    //~ `once`: each term of a leader gets copies of the parameters, but `Once` is not `Clone`: derive it, take an `Arc`, or bound it `T: Clone`
    drop(once);
    Ok(())
}

fn main() {}
