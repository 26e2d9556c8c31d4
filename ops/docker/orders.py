"""A stand-in for an application's tasks: replace it with your own module."""

from penstock import App

app = App()


@app.task
def send_receipt(order_id: int, to: str) -> str:
    return f"receipt of order {order_id} sent to {to}"
